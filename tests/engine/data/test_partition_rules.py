"""What every partition must declare."""

import pkgutil
from typing import get_args

from engine.data import partitions
from engine.data.partitions import PartitionSpec
from engine.data.partitions.rule import PartitionRule

MEMBERS: tuple[type[PartitionRule], ...] = get_args(get_args(PartitionSpec)[0])
SHARED_CODE = {"rule", "sized"}


def test_every_file_of_the_folder_is_a_partition_of_the_spec() -> None:
    files = {module.name for module in pkgutil.iter_modules(partitions.__path__)}
    assert files - SHARED_CODE == {member.__module__.rpartition(".")[2] for member in MEMBERS}


def test_a_partition_is_in_the_file_of_its_name() -> None:
    for member in MEMBERS:
        [name] = get_args(member.model_fields["name"].annotation)
        assert member.__module__ == f"engine.data.partitions.{name.replace('-', '_')}"


def test_every_partition_allocates_by_itself() -> None:
    assert [member.__name__ for member in MEMBERS if "allocate" not in vars(member)] == []


def test_a_sized_partition_lets_people_choose_the_size() -> None:
    assert all(("local_size" in member.model_fields) == member.is_sized for member in MEMBERS)


def test_a_concentration_comes_with_the_letter_that_its_description_uses() -> None:
    letters = {
        name: field.json_schema_extra
        for member in MEMBERS
        for name, field in member.model_fields.items()
        if (field.description or "").startswith("Concentration")
    }
    assert letters == {"gamma": {"symbol": "γ"}, "beta": {"symbol": "β"}, "alpha": {"symbol": "α"}}
