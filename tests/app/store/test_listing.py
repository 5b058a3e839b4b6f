"""The list is filtered, sorted and paged in the database, on SQLite and PostgreSQL alike."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import Session

from app.config import Settings
from app.store import experiments, lifecycle, listing, steering
from app.store.database import Database
from app.store.listing import Filter, Sort
from app.store.states import State
from tests.services import claim, http, look, serving, submit, wait_until, waiting_for_locks


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


def test_accuracy_is_the_final_one_under_protocol_c_and_the_best_one_under_a(database: Database) -> None:
    under = {"A": submit(database), "C": submit(database, evaluation={"protocol": "C"}), "none": submit(database)}
    with database.write() as session:
        for protocol, best, final in (("A", 0.6, 0.1), ("C", 0.9, 0.5)):
            row = session.get(type(look(database, under[protocol])), under[protocol])
            assert row is not None
            row.best_accuracy, row.final_accuracy = best, final
    assert ids(database, sort=Sort.ACCURACY) == [under["A"], under["C"], under["none"]]
    with database.read() as session:
        assert [row.id for row in experiments.best_by_dataset(session, "fedavg")] == [under["A"]]


def test_a_tag_is_found_in_any_script(database: Database) -> None:
    found = submit(database, tags=["μ klein", "夜"])
    submit(database, tags=["m klein"])
    assert ids(database, Filter(tag="μ klein")) == ids(database, Filter(tag="夜")) == [found]


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
        steering.annotate(session, experiment, {"name": "new", "tags": ["seen"]})
    after = look(database, experiment)
    assert (after.name, after.tags, after.notes) == ("new", ["seen"], before.notes)
    assert {"name", "tags", "notes"}.isdisjoint(after.spec), "they are kept once"
    full = experiments.full_spec(after)
    assert (full["name"], full["tags"], set(full)) == ("new", ["seen"], {"name", "tags", "notes", *after.spec})
    assert after.fingerprint == before.fingerprint
    assert after.state_seq > before.state_seq


@pytest.mark.postgres
def test_labels_changed_by_two_requests_at_once_are_both_kept(postgres: Database, settings: Settings) -> None:
    key = submit(postgres, name="old", tags=[])
    with (
        serving(
            settings.model_copy(update={"database_url": postgres.url.render_as_string(hide_password=False)})
        ) as address,
        http(address) as client,
    ):

        def patch(labels: dict[str, Any]) -> int:
            return client.patch(f"/api/experiments/{key}", json=labels).status_code

        with ThreadPoolExecutor(2) as pool:
            with postgres.write() as session:
                assert lifecycle.locked(session, key) is not None
                asked = [pool.submit(patch, labels) for labels in ({"name": "new"}, {"tags": ["seen"]})]
                wait_until(lambda: waiting_for_locks(postgres) == 2, what="both requests")
            assert [answer.result() for answer in asked] == [200, 200]
    row = look(postgres, key)
    assert (row.name, row.tags) == ("new", ["seen"])


def plans(database: Database, look: Callable[[Session], object]) -> list[str]:
    """How SQLite goes about each query of a look, a line each."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    with database.read() as session:
        look(session)
    event.remove(database.engine, "before_cursor_execute", note)
    with database.engine.connect() as connection:
        return [
            "; ".join(
                row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            )
            for statement, parameters in asked
        ]


FILTERS = {
    "state": Filter(state=State.FINISHED),
    "algorithm": Filter(algorithm="fedavg"),
    "dataset": Filter(dataset="digits"),
}


@pytest.mark.parametrize("column", FILTERS)
def test_a_filter_reads_and_counts_only_what_it_lets_through(sqlite_database: Database, column: str) -> None:
    [counted] = plans(sqlite_database, lambda session: listing.count(session, FILTERS[column]))
    assert f"SEARCH experiment USING INDEX ix_experiment_shown_{column}" in counted
    found = plans(sqlite_database, lambda session: listing.find(session, FILTERS[column]))[0]
    assert f"SEARCH experiment USING INDEX ix_experiment_shown_{column}" in found
    assert "TEMP B-TREE" not in found, "newest first is the order of the index"


@pytest.mark.parametrize(("sort", "column"), [("state", "state"), ("method", "algorithm"), ("data", "dataset")])
@pytest.mark.parametrize("descending", [True, False])
def test_a_sort_by_what_seldom_changes_follows_an_index(
    sqlite_database: Database, sort: str, column: str, descending: bool
) -> None:
    plan = plans(
        sqlite_database, lambda session: listing.find(session, Filter(), sort=Sort(sort), descending=descending)
    )[0]
    assert f"ix_experiment_shown_{column}" in plan


def test_totals_and_choices_are_read_in_the_order_of_an_index(sqlite_database: Database) -> None:
    [by_state] = plans(sqlite_database, experiments.counts)
    [by_method] = plans(sqlite_database, experiments.counts_by_algorithm)
    methods, datasets, _tags = plans(sqlite_database, listing.choices)
    assert by_state == "SCAN experiment USING INDEX ix_experiment_shown_state"
    assert by_method == methods == "SCAN experiment USING INDEX ix_experiment_shown_algorithm"
    assert datasets == "SCAN experiment USING INDEX ix_experiment_shown_dataset"
