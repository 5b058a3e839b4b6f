"""Families: their members, their common width, and who gets what."""

from collections.abc import Callable

import pytest

from engine.models import ARCHITECTURES, FAMILIES, Family, SplitModel, assign, count

HTFE_8 = ("fedavgcnn", "googlenet", "mobilenetv2", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("cnn-1-5", ("cnn-1", "cnn-2", "cnn-3", "cnn-4", "cnn-5")),
        ("htfe-img-2", ("fedavgcnn", "resnet18")),
        ("htfe-img-3", ("resnet10", "resnet18", "resnet34")),
        ("htfe-img-5", ("googlenet", "mobilenetv2", "resnet18", "resnet34", "resnet50")),
        ("htfe-img-8", HTFE_8),
        (
            "htfe-img-9",
            (
                "resnet4",
                "resnet6",
                "resnet8",
                "resnet10",
                "resnet18",
                "resnet34",
                "resnet50",
                "resnet101",
                "resnet152",
            ),
        ),
        ("res34-htc-img-4", ("resnet34", "resnet34-mlp512", "resnet34-mlp256", "resnet34-mlp128")),
        (
            "htfe-img-8-htc-img-4",
            (
                "fedavgcnn",
                "googlenet-mlp512",
                "mobilenetv2-mlp256",
                "resnet18-mlp128",
                "resnet34",
                "resnet50-mlp512",
                "resnet101-mlp256",
                "resnet152-mlp128",
            ),
        ),
        ("htm-img-10", (*HTFE_8, "vit-b-16", "vit-b-32")),
        ("compfl-2", ("compfl-cnn", "resnet18-cifar")),
        ("compfl-3", ("compfl-cnn", "resnet9-cifar", "resnet18-cifar")),
        ("compfl-fmnist-2", ("fmnist-small", "fmnist-large")),
        ("tiny-3", ("tiny-mlp", "tiny-cnn", "tiny-bn")),
    ],
)
def test_a_family_has_its_published_members_in_order(name: str, members: tuple[str, ...]) -> None:
    assert FAMILIES[name].members == members


def test_every_architecture_is_a_family_of_one() -> None:
    for name in ARCHITECTURES:
        assert FAMILIES[name].members == (name,)


def test_every_family_is_registered_under_its_name_with_known_members_and_its_own_title() -> None:
    assert all(family.name == name for name, family in FAMILIES.items())
    assert all(member in ARCHITECTURES for family in FAMILIES.values() for member in family.members)
    assert len({family.title for family in FAMILIES.values()}) == len(FAMILIES)


@pytest.mark.parametrize("name", sorted(name for name in FAMILIES if FAMILIES[name].feature_dim is not None))
def test_all_members_of_a_family_make_features_of_its_width(name: str) -> None:
    family = FAMILIES[name]
    for member in family.members:
        assert ARCHITECTURES[member].feature_dim == family.feature_dim


def test_the_families_have_the_published_feature_widths() -> None:
    widths = {
        name: FAMILIES[name].feature_dim for name in ("cnn-1-5", "htfe-img-8", "htm-img-10", "compfl-2", "compfl-3")
    }
    assert widths == {"cnn-1-5": 500, "htfe-img-8": 512, "htm-img-10": 512, "compfl-2": None, "compfl-3": None}


@pytest.mark.parametrize("name", ["compfl-2", "compfl-3", "compfl-fmnist-2"])
def test_compfl_experts_come_in_ascending_order_of_extractor_parameters(
    name: str, weightless: Callable[..., SplitModel]
) -> None:
    sizes = [count(weightless(member).body)[0] for member in FAMILIES[name].members]
    assert sizes == sorted(set(sizes))


FAMILY = Family("letters", "Letters", ("a", "b", "c"), 1)


@pytest.mark.parametrize(
    ("clients", "modulo", "blocks"),
    [(1, "a", "a"), (2, "ab", "ab"), (6, "abcabc", "aabbcc"), (7, "abcabca", "aaabbcc"), (8, "abcabcab", "aaabbbcc")],
)
def test_clients_get_architectures_in_turn_or_in_equal_blocks(clients: int, modulo: str, blocks: str) -> None:
    assert assign(FAMILY, clients, "modulo", seed=0) == list(modulo)
    assert assign(FAMILY, clients, "blocks", seed=0) == list(blocks)


def test_twenty_compfl_clients_are_ten_cnns_and_ten_resnets() -> None:
    assert assign(FAMILIES["compfl-2"], 20, "blocks", seed=0) == ["compfl-cnn"] * 10 + ["resnet18-cifar"] * 10


def test_drawn_architectures_depend_on_the_seed_alone_and_are_about_equally_many() -> None:
    drawn = assign(FAMILY, 3000, "uniform", seed=1)
    assert drawn == assign(FAMILY, 3000, "uniform", seed=1) != assign(FAMILY, 3000, "uniform", seed=2)
    assert all(900 < drawn.count(letter) < 1100 for letter in "abc")


def test_a_federation_without_clients_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 client, but got 0"):
        assign(FAMILY, 0, "modulo", seed=0)
