"""Numbers that are not finite count in nothing: messages are left out, clients sit out, and the run goes on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.kit.contract import Client, Payload, ServerState, Upload
from engine.kit.peer_to_peer import Gossip
from engine.kit.prototypes import all_rows, mean_rows
from engine.kit.tensors import all_finite, copy_tensors
from engine.kit.work import ClientResult
from engine.methods import REGISTRY
from engine.models.families import FAMILIES, Family
from engine.records import Dropped, RoundRecord
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.run import Diverged, Run
from engine.runtime.screening import NOT_FINITE, screened
from engine.spec.experiment import ExperimentSpec
from engine.testing import parts, same
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.methods.federation import server_history

METHODS = list(REGISTRY)
TALKATIVE = [method for method in METHODS if method != "standalone"]
TABLE_1 = ["lg-fedavg", "fedgen", "fedgh", "fedkd", "fd", "fedproto", "fedtgp", "pfedes", "fedmrl", "fedarc"]
"""The methods of FedARC's main table."""
NAN = float("nan")
Harm = Callable[[Client, Payload], Payload]


def poisoned(run: Run, harm: Harm) -> Run:
    """Every client's message passes through `harm` before it is sent."""
    honest = run.algorithm.local_update

    def local_update(client: Client, received: Payload) -> Payload:
        return harm(client, honest(client, received))

    run.algorithm.local_update = local_update  # type: ignore[method-assign]
    return run


def spoiled(payload: Payload) -> Payload:
    return {
        name: torch.full_like(tensor, NAN) if tensor.is_floating_point() else tensor for name, tensor in payload.items()
    }


def spoils(client_id: int) -> Harm:
    return lambda client, payload: spoiled(payload) if client.id == client_id else payload


def fails(*client_ids: int, round: int | None = None) -> Harm:
    """These clients' training ends without a finite loss, in one round or in all."""

    def harm(client: Client, payload: Payload) -> Payload:
        if client.id in client_ids and round in (None, client.round):
            raise Diverged(client.round, client.id, NAN)
        return payload

    return harm


def everything_is_finite(run: Run) -> bool:
    kept = [run.federation.states.get(client) for client in run.federation.states.ids()]
    return all(all_finite(tensors.values()) for tensors in [*parts(run.server).values(), *kept])


def message(client: int, samples: int, value: float) -> ClientResult:
    """What a client leaves behind whose model has this value everywhere."""
    payload = {"θ": torch.full((2,), value)}
    usable, dropped = screened(client, payload)
    upload = Upload(client, samples, "all", usable or {})
    return ClientResult(client, upload, 1.0, 2, 2, 0, 0.0, {}, usable=usable is not None, dropped=dropped)


# what is left out of a mean


def test_the_weights_of_those_that_can_be_used_are_normalised_again(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg"))
    run.federation.server = ServerState({"all": {"θ": torch.zeros(2)}})
    server, of_server = run.federation.aggregate([message(0, 10, 1.0), message(1, 20, NAN), message(2, 30, 4.0)], 1)
    assert server.groups["all"]["θ"].tolist() == [3.25, 3.25]  # (10·1 + 30·4) / 40
    assert of_server == []


def test_a_server_that_gets_nothing_it_can_use_keeps_its_state(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg"))
    run.federation.server = ServerState({"all": {"θ": torch.ones(2)}}, flops=5)
    server, _ = run.federation.aggregate([message(0, 10, NAN), message(1, 20, float("inf"))], 1)
    assert server.groups["all"]["θ"].tolist() == [1.0, 1.0]
    assert server.flops == 0


def test_one_class_of_a_table_is_left_out_alone() -> None:
    tables = [
        {"classes": torch.tensor([0, 1]), "means": torch.tensor([[1.0], [NAN]]), "counts": torch.tensor([3, 3])},
        {"classes": torch.tensor([0, 1]), "means": torch.tensor([[3.0], [5.0]]), "counts": torch.tensor([3, 3])},
    ]
    kept = [screened(client, table) for client, table in enumerate(tables)]
    assert kept[0][1] == (Dropped(client=0, part="classes 1", reason=NOT_FINITE),)
    assert kept[1] == (tables[1], ())
    uploads = [Upload(client, 3, "all", payload) for client, (payload, _) in enumerate(kept) if payload is not None]
    assert mean_rows(all_rows(uploads))["means"].tolist() == [[2.0], [5.0]]


def test_a_table_without_a_finite_row_is_no_message() -> None:
    table = {"classes": torch.tensor([0]), "means": torch.tensor([[NAN]]), "counts": torch.tensor([3])}
    assert screened(4, table) == (None, (Dropped(client=4, part="message", reason=NOT_FINITE),))


def test_half_a_network_is_no_message() -> None:
    network = {"weight": torch.ones(2, 2), "bias": torch.tensor([1.0, NAN]), "batches": torch.tensor(3)}
    assert screened(4, network)[0] is None


@pytest.mark.parametrize("method", TALKATIVE)
def test_a_message_that_is_not_finite_is_counted_noted_and_otherwise_ignored(
    method: str, small_spec: SpecMaker
) -> None:
    spec = small_spec(method, participation=1.0, evaluation={"protocol": "B"})
    run = poisoned(Run(spec), spoils(2))
    records = list(run.rounds())
    assert everything_is_finite(run)
    for record in records[1:]:
        assert record.dropped == [Dropped(client=2, part="message", reason=NOT_FINITE)]
        assert record.cohort == list(range(6))
    clean = records_of(spec)
    if method != "fedkd":  # the rank of what it sends depends on what was learned
        assert [record.scalars_up for record in records] == [record.scalars_up for record in clean]
    assert clean[-1].dropped == []


@pytest.mark.parametrize("method", TALKATIVE)
def test_when_nothing_can_be_used_the_server_keeps_its_state_and_the_rounds_go_on(
    method: str, small_spec: SpecMaker
) -> None:
    run = poisoned(Run(small_spec(method, rounds=3)), lambda _, payload: spoiled(payload))
    before: Mapping[str, Mapping[str, Tensor]] = {}
    for record in run.rounds():
        if record.round == 0:
            before = {name: copy_tensors(tensors) for name, tensors in parts(run.server).items()}
        else:
            assert [note.client for note in record.dropped] == record.cohort
        assert all(same(parts(run.server)[name], before[name]) for name in before)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("compressed", ["update", "parameters"])
def test_a_client_of_fedkd_holds_the_servers_mentee_after_a_round_without_a_message(
    strict: bool, compressed: str, small_spec: SpecMaker
) -> None:
    algorithm = {"name": "fedkd", "strict_wire": strict, "compressed": compressed}
    spec = small_spec(algorithm, participation=1.0, rounds=4)
    run = poisoned(Run(spec), lambda client, payload: spoiled(payload) if client.round == 2 else payload)
    for record in run.rounds():
        if record.round == 3:
            break
    client = run.federation.load(0, 4)
    run.algorithm.receive(client, run.algorithm.download(run.server, client))  # type: ignore[attr-defined]
    held = run.algorithm.shared(client).state_dict()  # type: ignore[attr-defined]
    for name, tensor in run.server.groups["all"].items():
        assert torch.allclose(held[name], tensor, atol=1e-6), name


@pytest.mark.parametrize("method", ["fedarc", "feddbe"])
def test_a_mean_feature_that_is_not_finite_is_left_out_of_the_opening(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec(method, participation=1.0))
    honest = run.algorithm.opening_update
    bad = {0, 3}

    def opening_update(client: Client, received: Payload) -> Payload:
        sent = honest(client, received)
        return spoiled(sent) if client.id in bad else sent

    run.algorithm.opening_update = opening_update  # type: ignore[method-assign]
    records = list(run.rounds())
    assert [note.client for note in records[0].dropped] == [0, 3]
    assert everything_is_finite(run)
    bad |= set(range(6))
    nobody = Run(small_spec(method, participation=1.0))
    nobody.algorithm.opening_update = opening_update  # type: ignore[method-assign]
    assert [len(record.dropped) for record in nobody.rounds()] == [6, 0, 0, 0]
    assert everything_is_finite(nobody)


def test_a_server_whose_own_training_diverges_keeps_its_state_for_that_round(small_spec: SpecMaker) -> None:
    def diverging(spec: ExperimentSpec) -> Run:
        run = Run(spec)
        honest = run.algorithm.aggregate

        def aggregate(server: ServerState, uploads: Any, round: int) -> ServerState:
            if round == 2:
                raise Diverged(2, None, NAN)
            return honest(server, uploads, round)

        run.algorithm.aggregate = aggregate  # type: ignore[method-assign]
        return run

    records = list(diverging(small_spec("fedgh")).rounds())
    assert [record.dropped for record in records] == [
        [],
        [],
        [Dropped(client=None, part="new state", reason="its training loss became nan")],
        [],
    ]
    strict = small_spec("fedgh", training={"lr": 0.05, "divergence_tolerance": 0})
    with pytest.raises(Diverged, match="the server became nan in round 2"):
        list(diverging(strict).rounds())


def test_a_state_of_the_server_that_is_not_finite_is_not_taken(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg", models={"family": "tiny-cnn"}))
    run.algorithm.aggregate = lambda server, *_: ServerState(  # type: ignore[method-assign]
        {group: spoiled(tensors) for group, tensors in server.groups.items()}
    )
    records = list(run.rounds())
    assert {(note.client, note.part) for record in records[1:] for note in record.dropped} == {(None, "new state")}
    assert everything_is_finite(run)


# a client that sits out


@pytest.mark.parametrize("method", METHODS)
def test_a_client_that_diverges_sits_out_the_round_and_takes_part_again(method: str, small_spec: SpecMaker) -> None:
    run = poisoned(Run(small_spec(method, participation=1.0)), fails(2, round=2))
    rounds = run.rounds()
    first = [next(rounds), next(rounds)][-1]
    before = copy_tensors(run.federation.states.get(2))
    second = next(rounds)
    assert same(run.federation.states.get(2), before)
    assert second.dropped == [Dropped(client=2, part="local work", reason="its training loss became nan")]
    assert second.cohort == list(range(6))
    assert "2" in second.client_accuracy
    assert "2" not in second.traces.get("expert", {})
    third = next(rounds)
    assert (first.dropped, third.dropped) == ([], [])
    assert not before or not same(run.federation.states.get(2), before)
    assert everything_is_finite(run)


def test_who_sits_out_sends_nothing_and_its_loss_does_not_count(small_spec: SpecMaker) -> None:
    spec = small_spec("fedavg", participation=1.0, models={"family": "tiny-cnn"}, rounds=1)
    [_, whole], [_, rest] = records_of(spec), list(poisoned(Run(spec), fails(0, 1, 2)).rounds())
    assert rest.scalars_up * 2 == whole.scalars_up
    assert rest.scalars_down == whole.scalars_down
    assert rest.client_flops == whole.client_flops  # it has worked
    assert rest.loss != whole.loss


def test_the_others_get_what_they_would_get_without_the_client_that_sits_out(small_spec: SpecMaker) -> None:
    spec = small_spec("fedavg", participation=1.0, models={"family": "tiny-cnn"}, rounds=1)
    sits = poisoned(Run(spec), fails(2))
    spoils_it = poisoned(Run(spec), spoils(2))
    assert len(list(sits.rounds())) == len(list(spoils_it.rounds()))
    assert same(sits.server.groups["tiny-cnn"], spoils_it.server.groups["tiny-cnn"])
    assert not same(sits.server.groups["tiny-cnn"], server_history(spec)[-1]["tiny-cnn"])


def test_weights_that_are_no_longer_finite_are_not_kept_though_the_loss_was(small_spec: SpecMaker) -> None:
    """The loss of the last step is measured before that step."""

    def harm(client: Client, payload: Payload) -> Payload:
        if client.id == 1 and client.round == 2:
            with torch.no_grad():
                next(client.model.parameters()).fill_(float("inf"))
        return payload

    run = poisoned(Run(small_spec("standalone", participation=1.0)), harm)
    records = list(run.rounds())
    [note] = records[2].dropped
    assert (note.client, note.part) == (1, "local work")
    assert "no longer finite after training" in note.reason
    assert everything_is_finite(run)


def test_a_loss_that_is_really_no_number_makes_its_client_sit_out_in_a_stack_too(small_spec: SpecMaker) -> None:
    """A few huge pixels, of one client alone."""
    spec = small_spec("fedper", participation=1.0, models={"family": "tiny-cnn"}, rounds=2)
    for stacked in ("off", "on"):
        run = Run(spec, stacked=stacked)
        images = run.dataset.images.float()
        images[run.partition.shares[3].train] = float("inf")
        object.__setattr__(run.dataset, "images", images)
        records = list(run.rounds())
        assert [[note.client for note in record.dropped if note.part == "local work"] for record in records] == [
            [],
            [3],
            [3],
        ]
        assert everything_is_finite(run)


def test_the_run_ends_when_more_of_a_cohort_diverge_than_may_sit_out_and_names_them(small_spec: SpecMaker) -> None:
    def ends(tolerance: float, *clients: int) -> str:
        training = {"lr": 0.05, "batch_size": 8, "divergence_tolerance": tolerance}
        run = poisoned(Run(small_spec("fedavg", participation=1.0, training=training)), fails(*clients, round=2))
        try:
            done = list(run.rounds())
        except Diverged as error:
            return str(error)
        return f"{len(done)} rounds"

    assert ends(0.5, 0, 2, 4) == "4 rounds"
    assert ends(0.5, 0, 2, 4, 5) == (
        "the training of clients 0, 2, 4, 5 diverged in round 2: 4 of a cohort of 6, but training.divergence_tolerance "
        "is 0.5; the training loss of client 0 became nan in round 2"
    )
    assert ends(0.0, 4) == "the training loss of client 4 became nan in round 2"
    assert ends(1.0, *range(6)) == "4 rounds"


def test_a_run_in_which_nobody_learns_any_more_ends_as_before(small_spec: SpecMaker) -> None:
    wild = {"lr": 10.0, "clip": None, "batch_size": 8, "epochs": 20}
    with pytest.raises(Diverged, match=r"(training of clients|loss of client) \d"):
        records_of(small_spec(training=wild, rounds=50))


@pytest.mark.parametrize("method", ["fedarc", "fedkd", "fedper", "pfedafm", "scaffold"])
def test_resumed_in_the_middle_with_a_client_that_sits_out_the_bits_are_the_same(
    method: str, small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = small_spec(method, rounds=4, participation=1.0)
    whole = list(poisoned(Run(spec), fails(1, round=2)).rounds())
    records: list[RoundRecord] = []
    for record, _ in rounds_with_checkpoints(poisoned(Run(spec), fails(1, round=2)), Checkpoints(tmp_path), 1):
        records.append(record)
        if record.round == 2:
            break
    snapshot = Checkpoints(tmp_path, writer="1").newest(spec.fingerprint())
    assert snapshot is not None
    records += list(poisoned(Run(spec, resume_from=snapshot, threads=2), fails(1, round=2)).rounds())
    assert same_results(records, whole)


def test_an_answer_that_is_no_number_is_wrong(small_spec: SpecMaker) -> None:
    run = Run(small_spec("standalone", participation=1.0, rounds=1))
    run.algorithm.predictor = lambda client: lambda x: client.model(x) * NAN  # type: ignore[method-assign]
    assert set(list(run.rounds())[-1].client_accuracy.values()) == {0.0}


def test_a_copy_that_diverges_while_it_is_tuned_for_the_test_answers_nothing(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg-ft", participation=1.0, rounds=2))
    honest = run.algorithm.prepare

    def prepare(client: Client, received: Payload | None) -> None:
        if client.id == 4:
            raise Diverged(client.round, client.id, NAN)
        honest(client, received)

    run.algorithm.prepare = prepare  # type: ignore[method-assign]
    last = list(run.rounds())[-1]
    assert last.client_accuracy["4"] == 0.0
    assert last.dropped == [Dropped(client=4, part="test", reason="its training loss became nan")]


# without a server


def peers(small_spec: SpecMaker, topology: str, **changes: Any) -> ExperimentSpec:
    algorithm = {"name": "compfl", "warmup": 0}
    given = {"participation": 1.0, "models": {"family": "tiny-3"}, "rounds": 4, **changes}
    return small_spec(algorithm, topology=topology, **given)


def failing_peer(run: Run, client_id: int) -> Run:
    for step in ("host", "refine"):
        honest = getattr(run.algorithm, step)

        def work(client: Client, *rest: Any, honest: Any = honest) -> Payload:
            if client.id == client_id:
                raise Diverged(client.round, client.id, NAN)
            payload: Payload = honest(client, *rest)
            return payload

        setattr(run.algorithm, step, work)
    return run


@pytest.mark.parametrize("topology", ["token-walk", "gossip"])
def test_a_peer_that_diverges_sits_out_and_the_others_go_on(topology: str, small_spec: SpecMaker) -> None:
    run = failing_peer(Run(peers(small_spec, topology)), 5)
    records = list(run.rounds())
    notes = [note for record in records for note in record.dropped]
    assert {(note.client, note.part) for note in notes} == {(5, "local work")}
    assert len(notes) == len({record.round for record in records if record.dropped})  # once a round
    assert 5 not in run.federation.states.ids()
    assert everything_is_finite(run)


def test_a_token_moves_on_as_it_came_from_a_holder_that_sits_out(small_spec: SpecMaker) -> None:
    run = Run(peers(small_spec, "token-walk", models={"family": "tiny-cnn"}, training={"divergence_tolerance": 1}))
    for client in range(6):
        failing_peer(run, client)
    rounds = run.rounds()
    next(rounds)
    before = copy_tensors(run.server.groups["tiny-cnn"])
    assert next(rounds).dropped
    assert same(run.server.groups["tiny-cnn"], before)


def test_neighbours_of_a_peer_that_sits_out_average_as_if_it_were_not_there(small_spec: SpecMaker) -> None:
    spec = peers(small_spec, "gossip", models={"family": "tiny-cnn"}, clients=3, rounds=1)
    run = failing_peer(Run(spec), 2)
    copies: dict[int, Tensor] = {}
    honest = run.algorithm.refine  # type: ignore[attr-defined]

    def refine(client: Client, expert: str, age: int) -> Payload:
        copy: Payload = honest(client, expert, age)
        copies[client.id] = next(iter(copy.values())).clone()
        return copy

    run.algorithm.refine = refine  # type: ignore[attr-defined]
    assert isinstance(run.peers, Gossip)
    [_, record] = run.rounds()
    name = next(name for name in run.federation.states.get(0) if name.startswith("model.body"))
    assert torch.allclose(run.federation.states.get(0)[name], (copies[0] + copies[1]) / 2)  # weights ½ and ½
    assert 2 not in run.federation.states.ids()
    body = record.scalars_down + record.scalars_up
    assert body == 2 * 2 * sum(t.numel() for t in run.setup.model("tiny-cnn").body.state_dict().values())


# the network that showed it


@pytest.fixture
def one_deep(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ExperimentSpec]:
    """Two small networks and a ResNet-152 with a hundred samples, which sees ten batches of them in a round."""
    families = {**FAMILIES, "one-deep": Family("one-deep", "", ("fedavgcnn", "fedavgcnn", "resnet152"), 512)}
    monkeypatch.setattr("engine.spec.models.FAMILIES", families)
    monkeypatch.setattr("engine.runtime.setup.FAMILIES", families)

    def make(algorithm: dict[str, Any], **training: Any) -> ExperimentSpec:
        spec = {
            "preset": "B",
            "algorithm": algorithm,
            "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 100, "channels": 3, "size": 32},
            "partition": {"name": "iid"},
            "models": {"family": "one-deep"},
            "clients": 3,
            "rounds": 2,
            "seed": 7,
            "training": training,
        }
        return ExperimentSpec.parse(spec)

    return make


def test_a_deep_network_that_knows_few_batches_ends_no_run(one_deep: Callable[..., ExperimentSpec]) -> None:
    """Asked in eval mode by pFedES' second phase, without recalibration, it has no finite loss any more."""
    spec = one_deep({"name": "pfedes", "proxy_epochs": 1}, lr=0.1, recalibrate_below=0)
    run = Run(spec)
    records = list(run.rounds())
    assert {note.client for record in records for note in record.dropped} <= {2}
    assert everything_is_finite(run)
    assert all(record.loss is not None and record.accuracy is not None for record in records[1:])


EVERY_DAY = {"fedgh"}


@pytest.mark.parametrize(
    "method",
    [pytest.param(method, marks=[] if method in EVERY_DAY else [pytest.mark.slow]) for method in TABLE_1],
)
def test_preset_b_leaves_nobody_out_for_one_small_deep_client(
    method: str, one_deep: Callable[..., ExperimentSpec]
) -> None:
    run = Run(one_deep({"name": method}))
    records = list(run.rounds())
    assert [record.dropped for record in records] == [[], [], []]
    assert set(records[1].traces["recalibrated"]) == {"2"}
    assert everything_is_finite(run)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["token-walk", "gossip"])
def test_nobody_ends_a_run_without_a_server_with_deep_clients_that_know_few_batches(topology: str) -> None:
    spec = {
        "preset": "C",
        "algorithm": {"name": "compfl", "warmup": 0, "hops": 2} if topology == "token-walk" else {"name": "compfl"},
        "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 50, "channels": 3, "size": 32},
        "partition": {"name": "iid"},
        "models": {"family": "compfl-2"},
        "topology": topology,
        "clients": 4,
        "rounds": 2,
        "seed": 7,
        "training": {"epochs": 1, "batch_size": 10, "lr": 0.1},
    }
    run = Run(ExperimentSpec.parse(spec))
    assert len(list(run.rounds())) == 3
    assert everything_is_finite(run)
