"""Submit, claim, cancel and end, on both databases."""

import threading

import pytest

from app.store import experiments, lifecycle, listing, orphans, queue, rounds
from app.store.claims import Claim
from app.store.database import Database
from app.store.listing import Filter
from app.store.queue import MAX_DEATHS
from app.store.rounds import Verdict
from app.store.states import AlreadyFinished, State
from app.views.experiments import experiment_view
from tests.services import claim, look, record, state, submit


def test_a_submitted_experiment_is_queued_with_its_complete_spec(database: Database) -> None:
    key = submit(database, name="first", tags=["a", "b"])
    view = experiment_view(look(database, key))
    assert (view.state, view.name, view.tags, view.next_round) == ("queued", "first", ["a", "b"], 0)
    assert view.spec["training"]["momentum"] == 0.9
    assert (view.headline, view.error, view.owner, view.started_at) == (None, None, None, None)
    assert view.totals.model_dump() == {"bytes_up": 0, "bytes_down": 0, "client_flops": 0}


def test_ids_grow_and_pages_come_newest_first(database: Database) -> None:
    keys = [submit(database, name=f"n{number}") for number in range(5)]
    with database.read() as session:
        first = listing.find(session, Filter(), limit=2)
        second = listing.find(session, Filter(before=first[-1].id), limit=2)
        last = listing.find(session, Filter(before=second[-1].id), limit=2)
    assert [[row.id for row in page] for page in (first, second, last)] == [keys[:2:-1], keys[2:0:-1], keys[:1]]


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("alpha", ["Alpha one"]),
        ("ONE", ["Alpha one"]),
        ("fedavg beta", ["beta 100%"]),
        ("blue", ["beta 100%"]),
        ("100%", ["beta 100%"]),
        ("%", ["beta 100%"]),
        ("", ["beta 100%", "Alpha one"]),
        ("nothing", []),
    ],
)
def test_search_looks_for_all_words_in_name_tags_and_algorithm(
    sqlite_database: Database, search: str, names: list[str]
) -> None:
    submit(sqlite_database, name="Alpha one")
    submit(sqlite_database, name="beta 100%", tags=["blue"])
    with sqlite_database.read() as session:
        rows = listing.find(session, Filter(search=search))
    assert [row.name for row in rows] == names


def test_a_claim_takes_the_oldest_of_the_highest_priority(database: Database) -> None:
    first, second = submit(database), submit(database)
    with database.write() as session:
        row = experiments.get(session, second)
        assert row is not None
        row.priority = 1
    taken = [claim(database), claim(database), claim(database)]
    assert [found and found.experiment for found in taken] == [second, first, None]


def test_an_experiment_waits_for_its_time(database: Database) -> None:
    key = submit(database)
    with database.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.start_after = row.created_at + 3600
    assert claim(database) is None
    with database.read() as session:
        assert queue.due(session) == 0


def test_claims_that_race_never_take_the_same_experiment(database: Database) -> None:
    keys = {submit(database) for _ in range(12)}
    taken: list[Claim] = []

    def work(owner: str) -> None:
        while found := claim(database, owner):
            taken.append(found)

    threads = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(keys)
    assert {found.experiment for found in taken} == keys


def test_an_expired_lease_lets_another_worker_take_over_with_a_greater_fence(database: Database) -> None:
    key = submit(database)
    old = claim(database, "old", lease_seconds=-1)
    new = claim(database, "new")
    assert old is not None
    assert new is not None
    assert (new.experiment, new.fence) == (key, old.fence + 1)
    row = look(database, key)
    assert (row.owner, row.attempts, row.deaths) == ("new", 2, 1)


def test_a_worker_that_lost_its_claim_can_change_nothing(database: Database) -> None:
    key = submit(database)
    zombie = claim(database, "zombie", lease_seconds=-1)
    owner = claim(database, "owner")
    assert zombie is not None
    assert owner is not None
    before = look(database, key).seq
    with database.write() as session:
        assert rounds.commit_round(session, zombie, record(0), 60) is Verdict.LOST
        assert lifecycle.renew(session, zombie, 60) is None
        assert lifecycle.standing(session, zombie) is None
        assert not lifecycle.begin(session, zombie, "p", {"device": "other"})
        assert not lifecycle.fail(session, zombie, "no")
        assert not lifecycle.diverge(session, zombie, "no")
        assert not lifecycle.release(session, zombie)
        assert not lifecycle.obey_cancel(session, zombie)
    row = look(database, key)
    assert (row.state, row.owner, row.next_round, row.seq) == (State.RUNNING, "owner", 0, before)


def test_renewing_keeps_the_experiment(database: Database) -> None:
    key = submit(database)
    held = claim(database, lease_seconds=-1)
    assert held is not None
    with database.write() as session:
        assert lifecycle.renew(session, held, 60) == lifecycle.Standing(cancel=False)
    assert claim(database) is None
    assert state(database, key) is State.RUNNING


def test_releasing_queues_it_again_without_counting_a_death(database: Database) -> None:
    key = submit(database)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        assert lifecycle.release(session, held)
    row = look(database, key)
    assert (row.state, row.owner, row.lease, row.deaths) == (State.QUEUED, None, None, 0)
    assert claim(database) is not None


def test_a_failure_keeps_its_reason_and_traceback(database: Database) -> None:
    key = submit(database)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        lifecycle.fail(session, held, "ValueError: no", "Traceback …")
    view = experiment_view(look(database, key))
    assert view.state == "failed"
    assert view.error is not None
    assert (view.error.reason, view.error.detail) == ("ValueError: no", "Traceback …")
    assert view.finished_at is not None
    assert claim(database) is None


def test_cancelling_a_queued_experiment_ends_it_at_once(database: Database) -> None:
    key = submit(database)
    with database.write() as session:
        lifecycle.cancel(session, key)
    assert state(database, key) is State.CANCELLED
    assert claim(database) is None


def test_cancelling_twice_is_the_same_as_once_while_it_still_runs(database: Database) -> None:
    key = submit(database)
    claim(database)
    for _ in range(2):
        with database.write() as session:
            row = lifecycle.cancel(session, key)
        assert row is not None
        assert row.state is State.CANCELLING


def test_what_has_ended_cannot_be_cancelled(database: Database) -> None:
    key = submit(database)
    with database.write() as session:
        lifecycle.cancel(session, key)
    with pytest.raises(AlreadyFinished, match="already cancelled"), database.write() as session:
        lifecycle.cancel(session, key)


def test_cancelling_what_does_not_exist_finds_nothing(database: Database) -> None:
    with database.write() as session:
        assert lifecycle.cancel(session, "01AAAAAAAAAAAAAAAAAAAAAAAA") is None


@pytest.mark.parametrize("end", ["fail", "diverge", "release", "obey", "last round"])
def test_a_cancelled_run_ends_cancelled_whatever_else_happens(database: Database, end: str) -> None:
    key = submit(database, rounds=1)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        rounds.commit_round(session, held, record(0), 60)
        lifecycle.cancel(session, key)
    with database.write() as session:
        if end == "fail":
            lifecycle.fail(session, held, "reason")
        elif end == "diverge":
            lifecycle.diverge(session, held, "reason")
        elif end == "release":
            lifecycle.release(session, held)
        elif end == "obey":
            lifecycle.obey_cancel(session, held)
        else:
            assert rounds.commit_round(session, held, record(1), 60) is Verdict.CANCELLED
    row = look(database, key)
    assert (row.state, row.error_reason, row.owner) == (State.CANCELLED, None, None)


def test_cancel_and_finish_at_the_same_time_give_exactly_one_end(database: Database) -> None:
    for _ in range(5):
        key = submit(database, rounds=1)
        held = claim(database)
        assert held is not None
        with database.write() as session:
            rounds.commit_round(session, held, record(0), 60)
        start = threading.Barrier(2)
        outcomes: dict[str, object] = {}

        def finish(
            held: Claim = held, start: threading.Barrier = start, outcomes: dict[str, object] = outcomes
        ) -> None:
            start.wait()
            with database.write() as session:
                outcomes["finish"] = rounds.commit_round(session, held, record(1), 60)

        def stop(key: str = key, start: threading.Barrier = start, outcomes: dict[str, object] = outcomes) -> None:
            start.wait()
            try:
                with database.write() as session:
                    lifecycle.cancel(session, key)
                outcomes["cancel"] = True
            except AlreadyFinished:
                outcomes["cancel"] = False

        threads = [threading.Thread(target=finish), threading.Thread(target=stop)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if outcomes["cancel"]:
            assert (state(database, key), outcomes["finish"]) == (State.CANCELLED, Verdict.CANCELLED)
        else:
            assert (state(database, key), outcomes["finish"]) == (State.FINISHED, Verdict.FINISHED)


def test_a_cancel_that_a_dead_worker_cannot_obey_is_carried_out_without_it(database: Database) -> None:
    key = submit(database)
    dead = claim(database, lease_seconds=-1)
    assert dead is not None
    with database.write() as session:
        lifecycle.cancel(session, key)
    assert claim(database) is None, "a cancelled run is not given to another worker"
    with database.write() as session:
        assert orphans.expire_cancelling(session, 180) == [key]
    assert state(database, key) is State.CANCELLED
    with database.write() as session:
        assert rounds.commit_round(session, dead, record(0), 60) is Verdict.LOST


def test_a_living_worker_gets_its_time_to_obey_a_cancel(database: Database) -> None:
    key = submit(database)
    claim(database)
    with database.write() as session:
        lifecycle.cancel(session, key)
        assert orphans.expire_cancelling(session, 180) == []
        assert orphans.expire_cancelling(session, -1) == [key]


def test_five_deaths_without_a_new_round_fail_the_experiment(database: Database) -> None:
    key = submit(database)
    for _ in range(MAX_DEATHS):
        assert claim(database, lease_seconds=-1) is not None
    assert claim(database) is None
    with database.write() as session:
        assert orphans.fail_hopeless(session) == [key]
    row = look(database, key)
    assert row.state is State.FAILED
    assert "5 workers died" in (row.error_reason or "")
    assert "batch_size" in (row.error_reason or "")


def test_a_new_round_makes_earlier_deaths_forgotten(database: Database) -> None:
    key = submit(database)
    for _ in range(MAX_DEATHS - 1):
        claim(database, lease_seconds=-1)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        rounds.commit_round(session, held, record(0), -1)
    assert look(database, key).deaths == 0
    assert claim(database) is not None


def test_the_leases_of_a_worker_known_to_be_dead_can_be_ended(database: Database) -> None:
    submit(database)
    claim(database, "dead")
    with database.write() as session:
        assert orphans.expire_leases(session, "somebody else") == 0
        assert orphans.expire_leases(session, "dead") == 1
    assert claim(database, "next") is not None
