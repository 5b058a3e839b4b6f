"""The one transaction that counts, on both databases."""

import math

import pytest

from app.store import lifecycle, rounds
from app.store.claims import Claim
from app.store.database import Database
from app.store.rounds import FIELDS, Verdict
from app.store.states import State
from app.views.experiments import experiment_view
from engine.records import Dropped, Headline, RoundRecord, headline
from tests.services import claim, look, record, submit

HERE = {"device": "cpu", "torch": "2", "torch_threads": 1}
ELSEWHERE = {**HERE, "device": "cuda"}


def started(database: Database, key: str, environment: dict[str, object] = HERE, lease_seconds: float = 60) -> Claim:
    held = claim(database, lease_seconds=lease_seconds)
    assert held is not None
    assert held.experiment == key
    with database.write() as session:
        assert lifecycle.begin(session, held, "partition", environment)
    return held


def commit(database: Database, held: Claim, *records: RoundRecord, lease_seconds: float = 60) -> list[Verdict]:
    verdicts = []
    for item in records:
        with database.write() as session:
            verdicts.append(rounds.commit_round(session, held, item, lease_seconds))
    return verdicts


def stored(database: Database, key: str) -> list[dict[str, object]]:
    with database.read() as session:
        return rounds.after(session, key)


def test_the_store_has_the_fields_of_a_record_in_its_order() -> None:
    assert tuple(RoundRecord.model_fields) == FIELDS


def test_rounds_add_up_to_progress_headline_and_totals(database: Database) -> None:
    key = submit(database, rounds=3)
    held = started(database, key)
    verdicts = commit(database, held, record(0, None), record(1, 0.4), record(2, 0.7), record(3, 0.6))
    assert verdicts == [Verdict.STORED, Verdict.STORED, Verdict.STORED, Verdict.FINISHED]
    view = experiment_view(look(database, key))
    assert (view.state, view.next_round, view.seconds) == ("finished", 4, 1.0)
    assert view.headline is not None
    assert view.headline == Headline(best_accuracy=0.7, best_round=2, final_accuracy=0.6)
    assert view.totals.model_dump() == {"bytes_up": 160, "bytes_down": 320, "client_flops": 4000}
    assert (view.partition_fingerprint, view.environment) == ("partition", HERE)


@pytest.mark.parametrize(
    ("protocol", "share", "marked"), [("A", 0.49, False), ("A", 0.5, True), ("C", 0.49, True), ("A", None, False)]
)
def test_a_finished_experiment_whose_judged_accuracy_is_that_of_the_majority_class_is_marked(
    database: Database, protocol: str, share: float | None, marked: bool
) -> None:
    """Its best accuracy is 0.52, the final one 0.4."""
    key = submit(database, rounds=2, evaluation={"protocol": protocol})
    held = claim(database)
    assert held is not None
    with database.write() as session:
        assert lifecycle.begin(session, held, "partition", HERE, share)
    commit(database, held, record(0, None), record(1, 0.52))
    assert not experiment_view(look(database, key)).no_convergence
    commit(database, held, record(2, 0.4))
    view = experiment_view(look(database, key))
    assert (view.state, view.majority_share, view.no_convergence) == ("finished", share, marked)


def test_validation_accuracies_are_stored_and_add_up_to_the_headline(database: Database) -> None:
    key = submit(database, rounds=3)
    records = [
        record(number, test, validation_accuracy=validation)
        for number, test, validation in [(0, None, None), (1, 0.4, 0.8), (2, 0.7, 0.5), (3, 0.6, 0.8)]
    ]
    commit(database, started(database, key), *records)
    view = experiment_view(look(database, key))
    assert view.headline == headline(records)
    assert view.headline.accuracy_at_best_validation == 0.4
    assert [item["validation_accuracy"] for item in stored(database, key)] == [None, 0.8, 0.5, 0.8]


@pytest.mark.parametrize(
    ("before", "again", "verdict"),
    [(None, 0.5, Verdict.REPEATED), (0.5, 0.5, Verdict.REPEATED), (0.5, 0.4, Verdict.DIFFERENT)],
)
def test_a_recomputed_round_may_bring_a_validation_accuracy_but_no_other_one(
    database: Database, before: float | None, again: float, verdict: Verdict
) -> None:
    held = started(database, submit(database))
    commit(database, held, record(0, None), record(1, validation_accuracy=before))
    assert commit(database, held, record(1, validation_accuracy=again)) == [verdict]


def test_a_record_comes_back_as_it_went_in(database: Database) -> None:
    key = submit(database)
    held = started(database, key)
    original = record(
        0, 1 / 3, loss=0.1 + 0.2, client_accuracy={"0": 2 / 3, "17": 1e-17}, traces={"alpha": {"0": [0.1, 2.0]}}
    )
    commit(database, held, original)
    assert stored(database, key) == [original.model_dump()]


def test_who_was_left_out_comes_back_and_is_compared(database: Database) -> None:
    key = submit(database)
    held = started(database, key)
    note = Dropped(client=3, part="message", reason="not all of its numbers are finite")
    assert commit(database, held, record(0, None, dropped=[note]), record(1, 0.5)) == [Verdict.STORED] * 2
    assert [row["dropped"] for row in stored(database, key)] == [[note.model_dump()], []]
    assert commit(database, held, record(0, None, dropped=[note])) == [Verdict.REPEATED]
    assert commit(database, held, record(0, None)) == [Verdict.DIFFERENT]


def test_the_opening_does_not_count_for_the_headline(database: Database) -> None:
    key = submit(database)
    commit(database, started(database, key), record(0, 0.99), record(1, 0.1))
    assert look(database, key).best_accuracy == 0.1


def test_what_is_no_number_is_stored_as_null(database: Database) -> None:
    key = submit(database)
    held = started(database, key)
    commit(database, held, record(0, math.nan, loss=math.inf, traces={"mu": [1.0, math.nan], "deep": {"x": -math.inf}}))
    [row] = stored(database, key)
    assert (row["accuracy"], row["loss"]) == (None, None)
    assert row["traces"] == {"mu": [1.0, None], "deep": {"x": None}}


def test_totals_may_pass_64_bits(database: Database) -> None:
    key = submit(database, rounds=5)
    huge = 2**62
    commit(database, started(database, key), *(record(number, client_flops=huge) for number in range(5)))
    assert look(database, key).totals["client_flops"] == 5 * huge


def test_a_gap_between_rounds_is_a_programming_error(database: Database) -> None:
    key = submit(database)
    held = started(database, key)
    with pytest.raises(ValueError, match="expected 0, but got 1"):
        commit(database, held, record(1))
    assert stored(database, key) == []


def test_a_repeated_round_is_compared_and_not_written_again(database: Database) -> None:
    key = submit(database, rounds=2)
    commit(database, started(database, key), record(0), record(1), lease_seconds=-1)
    before = stored(database, key)
    second = started(database, key)
    verdicts = commit(database, second, record(0, seconds=9.0), record(1, client_seconds=9.0), record(2))
    assert verdicts == [Verdict.REPEATED, Verdict.REPEATED, Verdict.FINISHED]
    assert stored(database, key)[:2] == before
    view = experiment_view(look(database, key))
    assert view.bit_identical
    assert view.totals.bytes_up == 120, "a repeated round is not counted twice"


def test_a_repeated_round_with_no_numbers_still_compares_equal(database: Database) -> None:
    key = submit(database)
    odd = record(0, math.nan, traces={"mu": math.nan})
    commit(database, started(database, key), odd, lease_seconds=-1)
    assert commit(database, started(database, key), odd) == [Verdict.REPEATED]


def test_a_different_repetition_in_the_same_environment_fails_the_run_and_keeps_the_rows(database: Database) -> None:
    key = submit(database)
    commit(database, started(database, key), record(0), record(1, 0.5), lease_seconds=-1)
    verdicts = commit(database, started(database, key), record(0), record(1, 0.5000001))
    assert verdicts == [Verdict.REPEATED, Verdict.DIFFERENT]
    row = look(database, key)
    assert row.state is State.FAILED
    assert "round 1" in (row.error_reason or "")
    assert "accuracy" in (row.error_reason or "")
    assert [item["accuracy"] for item in stored(database, key)] == [0.5, 0.5]


def test_a_different_repetition_in_another_environment_is_marked_and_goes_on(database: Database) -> None:
    key = submit(database, rounds=2)
    commit(database, started(database, key), record(0), record(1, 0.5), lease_seconds=-1)
    verdicts = commit(database, started(database, key, ELSEWHERE), record(0), record(1, 0.51), record(2))
    assert verdicts == [Verdict.REPEATED, Verdict.REPEATED, Verdict.FINISHED]
    view = experiment_view(look(database, key))
    assert not view.bit_identical
    assert view.environment == HERE
    assert stored(database, key)[1]["accuracy"] == 0.5


def test_a_different_repetition_on_a_gpu_is_marked_and_goes_on(database: Database) -> None:
    key, on_a_gpu = submit(database, rounds=2), {**HERE, "device": "cuda"}
    commit(database, started(database, key, on_a_gpu), record(0), record(1, 0.5), lease_seconds=-1)
    verdicts = commit(database, started(database, key, on_a_gpu), record(0), record(1, 0.5000001), record(2))
    assert verdicts == [Verdict.REPEATED, Verdict.REPEATED, Verdict.FINISHED]
    assert not look(database, key).bit_identical
    assert stored(database, key)[1]["accuracy"] == 0.5


def test_an_equal_repetition_in_another_environment_is_not_marked(database: Database) -> None:
    key = submit(database)
    commit(database, started(database, key), record(0), lease_seconds=-1)
    commit(database, started(database, key, ELSEWHERE), record(0))
    assert look(database, key).bit_identical


def test_back_in_the_first_environment_a_difference_is_no_bug_any_more(database: Database) -> None:
    key = submit(database)
    commit(database, started(database, key), record(0), lease_seconds=-1)
    commit(database, started(database, key, ELSEWHERE), record(0), record(1, 0.51), lease_seconds=-1)
    assert commit(database, started(database, key), record(0), record(1, 0.5)) == [Verdict.REPEATED] * 2
    assert not look(database, key).bit_identical


def test_columns_are_lists_and_leave_out_what_was_not_asked_for(database: Database) -> None:
    first, second = submit(database), submit(database)
    commit(database, started(database, first), record(0, None), record(1, 0.25))
    with database.read() as session:
        found = rounds.columns(session, [first, second], ["accuracy", "bytes_up"])
    assert found[first] == {"round": [0, 1], "accuracy": [None, 0.25], "bytes_up": [40, 40]}
    assert found[second] == {"round": [], "accuracy": [], "bytes_up": []}


def test_an_unknown_column_is_refused_with_the_known_ones(database: Database) -> None:
    with database.read() as session, pytest.raises(ValueError, match="no field 'acuracy'; it has round, accuracy"):
        rounds.columns(session, [], ["acuracy"])


def test_curves_and_clients_are_read_alike_from_both_databases(database: Database) -> None:
    experiment = submit(database)
    held = claim(database)
    assert held is not None
    untested = record(3, None, cohort=[1], client_accuracy={})
    history = [record(0, None, cohort=[]), record(1, 0.5), record(2, 0.7, client_accuracy={"1": 0.7}), untested]
    with database.write() as session:
        for item in history:
            rounds.commit_round(session, held, item, 60)
    with database.read() as session:
        found = rounds.costs(session, [experiment, "nobody"])
        assert found[experiment]["accuracy"] == (None, 0.5, 0.7, None)
        assert found[experiment]["participants"] == (0, 2, 2, 1)
        assert found["nobody"]["round"] == ()
        assert rounds.last_tested(session, [experiment]) == {experiment: 2}
        assert rounds.client_accuracy(session, {experiment: 2, "nobody": 1}) == {experiment: {"1": 0.7}}
        assert rounds.client_accuracy(session, {}) == {}
        assert rounds.latest_client_accuracy(session, experiment, 2) == {"0": 0.4, "1": 0.7}


def test_details_are_kept_of_some_tested_rounds_the_first_and_the_last_among_them(database: Database) -> None:
    key = submit(database, rounds=20)
    held = claim(database)
    assert held is not None
    for number in range(10):
        tested = number % 2 == 1  # rounds 1, 3, 5, 7 and 9
        values = record(number, 0.5 if tested else None, client_accuracy={"0": 0.5} if tested else {}, cohort=[0])
        with database.write() as session:
            rounds.commit_round(session, held, values, 60)
    with database.read() as session:
        whole = rounds.after(session, key)
        assert rounds.with_some_details(session, key, 5) == (whole, [1, 3, 5, 7, 9])
        some, tested_rounds = rounds.with_some_details(session, key, 3)
    assert tested_rounds == [1, 3, 5, 7, 9]
    assert [item["round"] for item in some if item["client_accuracy"]] == [1, 5, 9]
    assert [(item["round"], item["accuracy"]) for item in some] == [(item["round"], item["accuracy"]) for item in whole]
