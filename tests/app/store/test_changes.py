"""Changes are numbered in the order of their commits, on both databases."""

import threading

import pytest

from app.store import changes, lifecycle, rounds
from app.store.changes import changes_after
from app.store.database import Database
from tests.services import claim, look, record, submit


def numbers(database: Database, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
    with database.read() as session:
        return [(change.seq, change.kind) for change in changes_after(session, after, limit=limit)]


def test_every_change_takes_the_next_number(database: Database) -> None:
    key = submit(database, rounds=1)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        rounds.commit_round(session, held, record(0), 60)
    with database.write() as session:
        rounds.commit_round(session, held, record(1), 60)
    # submitted 1, claimed 2, round 0 is 3, round 1 is 4, and its end has a number of its own
    assert numbers(database) == [(3, "round"), (4, "round"), (5, "state")]
    assert look(database, key).seq == 5
    with database.read() as session:
        assert changes.current(session) == 5


def test_pages_of_changes_follow_each_other_without_gap_or_repetition(database: Database) -> None:
    submit(database, rounds=50)
    held = claim(database)
    assert held is not None
    for number in range(7):
        with database.write() as session:
            rounds.commit_round(session, held, record(number), 60)
    seen: list[tuple[int, str]] = []
    while page := numbers(database, seen[-1][0] if seen else 0, limit=3):
        seen += page
    assert seen == numbers(database)
    assert [seq for seq, _ in seen] == sorted({seq for seq, _ in seen})


def test_pages_of_some_experiments_hold_nothing_of_the_others(database: Database) -> None:
    mine, other = submit(database, rounds=50), submit(database, rounds=50)
    claims = [claim(database), claim(database)]
    for number in range(4):
        for held in claims:
            assert held is not None
            with database.write() as session:
                rounds.commit_round(session, held, record(number), 60)
    with database.read() as session:
        page = changes_after(session, 0, limit=4, experiments=[mine])
        assert [change.experiment for change in page] == [mine] * 4
        assert changes_after(session, page[-1].seq, limit=4, experiments=[mine])[0].row.seq == look(database, mine).seq
        assert {change.experiment for change in changes_after(session, 0)} == {mine, other}


def test_a_transaction_that_fails_uses_up_no_number(database: Database) -> None:
    submit(database)
    try:
        with database.write() as session:
            changes.number_new(session, ["01AAAAAAAAAAAAAAAAAAAAAAAA"])
            raise KeyError
    except KeyError:
        assert numbers(database) == [(1, "state")]


def test_no_row_is_locked_after_a_number_was_taken(database: Database) -> None:
    """Its owner may wait for the number: on PostgreSQL the two would wait for each other."""
    first, other = submit(database), submit(database)
    with database.write() as session:
        lifecycle.cancel(session, first)
        assert lifecycle.locked(session, first) is not None, "its own row it may look at again"
        with pytest.raises(AssertionError, match=f"{other}.* must be locked before a number is taken"):
            lifecycle.cancel(session, other)
    with database.write() as session:
        assert lifecycle.locked(session, other) is not None, "another transaction is not concerned"


def test_a_reader_that_follows_the_numbers_misses_nothing_while_many_write(database: Database) -> None:
    for _ in range(4):
        submit(database, rounds=1000)
    claims = [claim(database, f"worker-{number}") for number in range(4)]
    done = threading.Event()
    seen: list[tuple[int, str]] = []

    def write(position: int) -> None:
        held = claims[position]
        assert held is not None
        for number in range(15):
            with database.write() as session:
                rounds.commit_round(session, held, record(number), 60)

    def read() -> None:
        while True:
            last_look = done.is_set()
            with database.read() as session:
                page = changes_after(session, seen[-1][0] if seen else 0, limit=10)
            seen.extend((change.seq, change.kind) for change in page)
            if last_look and not page:
                return

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(position,)) for position in range(4)]
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert sum(kind == "round" for _, kind in seen) == 60


def test_a_cancel_is_seen_as_a_change_of_state(database: Database) -> None:
    key = submit(database)
    with database.write() as session:
        lifecycle.cancel(session, key)
    assert numbers(database, after=1) == [(2, "state")]
