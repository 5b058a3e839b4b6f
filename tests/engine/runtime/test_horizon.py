"""A shorter run is the beginning of a longer one, or says why it is not."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.methods import REGISTRY
from engine.records import RoundRecord
from engine.runtime.checkpoint import Checkpoints
from engine.runtime.horizon import Untellable, at_horizon
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.testing import parts
from tests.engine.conftest import SpecMaker, records_of

SHORT, LONG = 3, 6
Tensors = dict[str, torch.Tensor]

COSINE = {"epochs": 2, "batch_size": 8, "lr": 0.05, "schedule": "cosine"}
DECAYING = {**COSINE, "schedule": "exponential", "decay": 0.5}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": {"name": name}} for name in REGISTRY},
    "token-walk": {"algorithm": {"name": "compfl"}, "topology": "token-walk"},
    "gossip": {"algorithm": {"name": "compfl"}, "topology": "gossip", "participation": 1.0},
    "gossip with fixed turns": {
        "algorithm": {"name": "compfl", "rounds_per_expert": 1},
        "topology": "gossip",
        "participation": 1.0,
    },
    "fedkd at one energy": {"algorithm": {"name": "fedkd", "energy_start": 0.9, "energy_end": 0.9}},
    "cosine": {"algorithm": {"name": "fedavg"}, "training": COSINE},
    "exponential": {"algorithm": {"name": "fedavg"}, "training": DECAYING},
}
DEPENDENT = {"fedkd", "gossip", "cosine"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def began(spec: ExperimentSpec) -> tuple[list[RoundRecord], list[Tensors]]:
    """The first rounds, and all that is kept after them."""
    run = Run(spec)
    records = list(islice(run.rounds(), SHORT + 1))
    server = {f"{group}.{name}": t for group, tensors in parts(run.server).items() for name, t in tensors.items()}
    return records, [server, *(dict(run.federation.states.get(client)) for client in range(spec.clients))]


def equal(first: list[Tensors], second: list[Tensors]) -> bool:
    return all(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        for one, other in zip(first, second, strict=True)
    )


def test_methods_and_schedules_tell_whether_their_rounds_depend_on_how_many_there_are(
    case: str, small_spec: SpecMaker
) -> None:
    short, long = (small_spec(**CASES[case], rounds=rounds) for rounds in (SHORT, LONG))
    (records, state), (longer, longer_state) = began(short), began(long)
    moved = [at_horizon(record, short, LONG) for record in records]
    same = [record.without_times() for record in moved] == [record.without_times() for record in longer]
    reason = long.depends_on_rounds()
    assert (reason is not None) == (case in DEPENDENT)
    assert (same and equal(state, longer_state)) == (reason is None)


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("topology", ["server", "token-walk"])
def test_the_last_round_is_told_as_the_longer_run_has_it_and_back(
    protocol: str, every: int, topology: str, small_spec: SpecMaker
) -> None:
    changes = {"evaluation": {"protocol": protocol, "every": every}, "topology": topology}
    short, long = (small_spec("compfl", rounds=rounds, **changes) for rounds in (SHORT, LONG))
    of_short, of_long = records_of(short)[SHORT], records_of(long)[SHORT]
    assert at_horizon(of_short, short, LONG).without_times() == of_long.without_times()
    untested = every == 2
    idle_untested = protocol == "C" and topology == "server"
    if untested or idle_untested:
        with pytest.raises(Untellable, match=r"evaluation\.every is 2" if untested else "tests all 6 clients"):
            at_horizon(of_long, long, SHORT)
    else:
        assert at_horizon(of_long, long, SHORT).without_times() == of_short.without_times()


@pytest.mark.parametrize("method", ["pfedafm", "fedrod"])
def test_what_further_inference_paths_reached_is_told_of_the_cohort_alone(method: str, small_spec: SpecMaker) -> None:
    short, long = (small_spec(method, rounds=rounds, evaluation={"protocol": "C"}) for rounds in (SHORT, LONG))
    of_short, of_long = records_of(short)[SHORT], records_of(long)[SHORT]
    assert any(len(values) == 6 for name, values in of_short.traces.items() if name.startswith("accuracy_"))
    assert at_horizon(of_short, short, LONG).without_times() == of_long.without_times()


def test_a_histogram_of_the_last_round_is_not_made_up(small_spec: SpecMaker) -> None:
    long = small_spec("pfedafm", rounds=LONG)
    with pytest.raises(Untellable, match="pFedAFM notes alpha_histogram in its last round"):
        at_horizon(records_of(long)[SHORT], long, SHORT)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("fedavg-ft", "what of the test's cost"),
        ("fedapen", "what of the test's cost"),
        ({"name": "fedproto", "readout": "proto"}, "who of the cohort"),
    ],
)
def test_what_a_wider_test_leaves_open_is_not_made_up(
    algorithm: str | dict[str, Any], words: str, small_spec: SpecMaker
) -> None:
    short = small_spec(algorithm, rounds=SHORT, evaluation={"protocol": "C"}, models={"family": "tiny-3"})
    with pytest.raises(Untellable, match=words):
        at_horizon(records_of(short)[SHORT], short, LONG)


def test_the_validation_of_a_wider_test_is_not_made_up(small_spec: SpecMaker) -> None:
    validated = {"name": "iid", "split": "80-10-10"}
    short = small_spec(rounds=SHORT, partition=validated, evaluation={"protocol": "C"})
    with pytest.raises(Untellable, match="what the cohort alone reached on its validation samples"):
        at_horizon(records_of(short)[SHORT], short, LONG)
    untested, longer = (
        small_spec(rounds=rounds, partition=validated, evaluation={"every": 2}) for rounds in (SHORT, LONG)
    )
    moved = at_horizon(records_of(untested)[SHORT], untested, LONG)
    assert moved.without_times() == records_of(longer)[SHORT].without_times()


def test_a_test_that_failed_counts_only_where_it_is_made(small_spec: SpecMaker) -> None:
    short = small_spec(rounds=SHORT, evaluation={"every": 2})
    of_short = records_of(short)[SHORT]
    client = of_short.cohort[0]
    notes = [{"client": client, "part": part, "reason": "its training loss became nan"} for part in ("message", "test")]
    record = RoundRecord.model_validate({**of_short.model_dump(), "dropped": notes})
    assert [note.part for note in at_horizon(record, short, LONG).dropped] == ["message"]


def test_a_checkpoint_of_a_shorter_run_is_adopted_by_a_longer_one(small_spec: SpecMaker, tmp_path: Path) -> None:
    short, long = (small_spec("fedper", rounds=rounds) for rounds in (SHORT, LONG))
    run, source = Run(short), Checkpoints(tmp_path / "short", writer="5")
    list(run.rounds())
    source.save(run)
    old = Checkpoints(tmp_path / "short").newest(short.fingerprint())
    assert old is not None
    with pytest.raises(ValueError, match="the checkpoint belongs to spec"):
        Run(long, resume_from=old)
    own = Checkpoints(tmp_path / "long", writer="1")
    saved = own.adopt(old, long.fingerprint())
    for path in (tmp_path / "short").iterdir():
        path.unlink()
    snapshot = own.load(saved.manifest, saved.sha256)
    assert (snapshot.round, dict(snapshot.environment)) == (SHORT, run.environment)
    resumed = Run(long, resume_from=snapshot)
    rest = [record.without_times() for record in resumed.rounds()]
    assert rest == [record.without_times() for record in records_of(long)[SHORT + 1 :]]
    kept = own.save(resumed)
    assert Checkpoints(tmp_path / "long").load(kept.manifest, kept.sha256).round == LONG
