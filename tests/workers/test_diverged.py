"""A loss that is no number any more ends an experiment as diverged, through the real worker."""

import re

from app.config import Settings
from app.store import rounds
from app.store.database import Database
from app.store.states import State
from app.views.experiments import experiment_view
from tests.services import look, submit
from workers.job import run_next


def test_a_run_that_diverges_names_round_and_client_and_keeps_the_rounds_before(
    settings: Settings, sqlite_database: Database
) -> None:
    # every step multiplies the weights by 1 - lr·decay = -1.4 until they overflow
    training = {"epochs": 1, "batch_size": 128, "lr": 2.4, "momentum": 0.0, "weight_decay": 1.0, "clip": None}
    key = submit(
        sqlite_database,
        algorithm={"name": "standalone"},
        dataset={"name": "digits"},
        models={"family": "tiny-cnn"},
        training=training,
        rounds=60,
    )
    run_next(settings.model_copy(update={"threads": 1}), "worker-1")
    row = look(sqlite_database, key)
    assert row.state is State.DIVERGED
    told = re.search(r"loss of client (\d) became (nan|inf) in round (\d+)", row.error_reason or "")
    assert told is not None
    assert int(told[3]) == row.next_round > 1
    with sqlite_database.read() as session:
        stored = rounds.after(session, key)
    assert [record["round"] for record in stored] == list(range(row.next_round))
    assert all(record["loss"] is not None for record in stored[1:])
    view = experiment_view(row)
    assert (view.state, view.owner) == ("diverged", None)
    assert view.headline is not None
    assert view.finished_at is not None
