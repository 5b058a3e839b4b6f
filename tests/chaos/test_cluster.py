"""A sweep over three hosts goes on when one is cut off and another restarted, and gives the records of a quiet run."""

from pathlib import Path

import pytest
from sqlalchemy import select
from sqlmodel import col

from app.store.database import Database
from app.store.states import State
from app.store.tables import Experiment
from tests.chaos.cluster import Cluster, Host, cluster, why_not
from tests.chaos.storm import Plan, spec_of, undisturbed_sweep
from tests.services import look, short_folder, submit, wait_until
from tests.workers.processes import fences_in_order_of_commit, stored

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PLAN = Plan(experiments=10, rounds=150, epochs=20, kills=0)


def owned_by(database: Database, host: Host) -> str | None:
    """An experiment in the middle of its rounds on that host."""
    query = select(col(Experiment.id)).where(
        col(Experiment.state) == State.RUNNING,
        col(Experiment.owner).contains(host.name),
        col(Experiment.next_round).between(5, PLAN.rounds - 40),
    )
    with database.read() as session:
        return session.scalars(query).first()


def run_with_faults(hosts: Cluster) -> None:
    hosts.start_web_host()
    database = Database(hosts.database_url)
    keys = [submit(database, **spec_of(number, PLAN)) for number in range(PLAN.experiments)]
    for host in (hosts.first, hosts.second):
        hosts.start_worker(host)

    cut = wait_until(lambda: owned_by(database, hosts.first), 120, "work on the first host")
    fence = look(database, cut).fence
    hosts.first.cut_off()
    wait_until(lambda: look(database, cut).fence > fence, 120, "another host taking over")
    hosts.first.reconnect()

    wait_until(lambda: owned_by(database, hosts.second), 120, "work on the second host")
    database.close()
    hosts.stop_web_host()
    hosts.start_web_host()

    database = Database(hosts.database_url)
    wait_until(lambda: all(look(database, key).state.is_finished() for key in keys), 600, "the end of all experiments")
    bad = [
        (row.state.value, row.error_detail or row.error_reason)
        for row in (look(database, key) for key in keys)
        if row.state is not State.FINISHED
    ]
    assert bad == []
    for key, expected in zip(keys, undisturbed_sweep(len(keys), PLAN), strict=True):
        assert stored(database, key) == expected
        fences = fences_in_order_of_commit(database, key)
        assert fences == sorted(fences)
    database.close()


def test_a_sweep_survives_a_cut_cable_and_a_restarted_web_host() -> None:
    if reason := why_not():  # asked for by name: not having run is no success
        pytest.fail(reason)
    with short_folder() as folder:
        Path(folder).chmod(0o755)
        with cluster(folder) as hosts:
            try:
                run_with_faults(hosts)
            except BaseException:
                for log in sorted(folder.glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text()[-3000:]}")
                raise
