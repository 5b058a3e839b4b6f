"""The list is filtered, sorted and paged in the database, on SQLite and PostgreSQL alike."""

import pytest

from app.store import labels, listing
from app.store.database import Database
from app.store.listing import Filter, Sort
from app.store.states import State
from tests.services import claim, look, submit


def ids(database: Database, wanted: Filter | None = None, **how: object) -> list[str]:
    with database.read() as session:
        return [row.id for row in listing.find(session, wanted or Filter(), **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize("sort", Sort)
def test_every_sort_lists_every_experiment_once(database: Database, sort: Sort) -> None:
    made = {submit(database, name=name, clients=count) for name, count in (("a", 2), ("b", 4), (None, 3))}
    for descending in (True, False):
        assert set(ids(database, sort=sort, descending=descending)) == made


def test_values_that_are_missing_come_last_and_equal_ones_newest_first(database: Database) -> None:
    low, none, high, newer = (submit(database, name=name) for name in "abcd")
    with database.write() as session:
        for experiment, accuracy in ((low, 0.2), (high, 0.9), (newer, 0.9)):
            row = session.get(type(look(database, low)), experiment)
            assert row is not None
            row.best_accuracy = accuracy
    assert ids(database, sort=Sort.BEST) == [newer, high, low, none]
    assert ids(database, sort=Sort.BEST, descending=False) == [low, newer, high, none]


def test_filters_join_and_pages_follow_each_other(database: Database) -> None:
    night = [submit(database, tags=["night", 'with "quotes"'], seed=seed) for seed in range(3)]
    submit(database, tags=["nightly"])
    assert claim(database) is not None
    wanted = Filter(tag="night")
    assert ids(database, wanted) == night[::-1]
    assert ids(database, wanted, limit=2) + ids(database, wanted, limit=2, offset=2) == night[::-1]
    assert ids(database, Filter(tag="night", state=State.RUNNING)) == [night[0]]
    assert ids(database, Filter(tag='with "quotes"', search="fedavg")) == night[::-1]
    assert ids(database, Filter(algorithm="standalone")) == []
    with database.read() as session:
        assert listing.count(session, wanted) == 3
        assert listing.choices(session)["tags"] == ["night", "nightly", 'with "quotes"']


def test_labels_change_without_the_fingerprint(database: Database) -> None:
    experiment = submit(database, name="old")
    before = look(database, experiment)
    with database.write() as session:
        labels.relabel(session, experiment, {"name": "new", "tags": ["seen"]})
    after = look(database, experiment)
    assert (after.name, after.tags, after.spec["name"], after.spec["tags"]) == ("new", ["seen"], "new", ["seen"])
    assert after.fingerprint == before.fingerprint
    assert after.state_seq > before.state_seq
