"""The composition root: makes the application out of settings, the only module that wires everything together."""

import errno
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp

from app import api, errors, pages, starter
from app.api.artifacts import ArtifactWish
from app.api.experiments import QueueChange
from app.api.extend import Extension
from app.api.services import Services
from app.config import Settings, check_bind
from app.events import Events
from app.protocol import PatientProtocol, allow_files
from app.queue import Queue
from app.reconciler import Reconciler
from app.rehearsals import Rehearsals
from app.security import Doors, StrictHeaders
from app.store import experiments
from app.store.database import Database
from app.store.migrate import migrate
from app.sweeps import SweepSpec
from app.webhooks import Postman
from engine.spec.experiment import ExperimentSpec
from workers.embedded import Supervisor

log = logging.getLogger(__name__)

PORT_TRIES = 50
NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream", "application/x-tar")
"""Event streams, pictures, and trained networks, which are large and hardly get smaller."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """The web application, with its database migrated and its reconciler running while it is up."""
    settings = settings or Settings()
    settings.prepare_home()
    database = Database(settings.database)
    migrate(database)
    services = Services(settings, database, Queue(settings), Events(database), Rehearsals(settings))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        reconciler = Reconciler(settings, database, services.queue)
        reconciler.start()
        postman = Postman(settings, database)
        postman.start()
        try:
            yield
        finally:
            services.events.close()
            await services.rehearsals.close()
            postman.stop()
            reconciler.stop()
            services.queue.close()
            database.close()

    app = _Application(
        title="FedArena",
        summary="Experiments in federated learning",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.services = services
    app.state.settings, app.state.database = settings, database
    # the first level: half to a tenth of the bytes for a tenth of the time that the last one takes
    app.add_middleware(GZipMiddleware, compresslevel=1, exclude_content_types=NOT_COMPRESSED)
    app.add_middleware(Doors)
    errors.install(app)
    app.include_router(api.router)
    app.include_router(api.health_router)
    _add_pages(app)
    _complete_openapi(app)
    return app


class _Application(FastAPI):
    """With the strict headers outside of what the framework adds, so that its answer to a bug has them too."""

    def build_middleware_stack(self) -> ASGIApp:
        return StrictHeaders(super().build_middleware_stack())


def serve(settings: Settings, *, slots: int | None, worker: bool = True, ready: Callable[[str], None] = print) -> int:
    """Web server, worker and broker until Ctrl-C or SIGTERM; `ready` gets the address. Returns the exit code."""
    check_bind(settings.host)
    supervisor = Supervisor(settings, slots=slots, worker=worker)
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        listener = listen(settings.host, settings.port)
        _check_store(settings)  # before a worker finds out
        settings = supervisor.start()
        allow_files()  # after the worker's start, which keeps the ordinary limit
        app = create_app(settings)
        if settings.starter:
            submit_starter(app.state.services)
        address = _address(listener)
        settings.address_file.write_text(address)
        server = _Server(app, supervisor, lambda: ready(address))
        # uvicorn hands the signals on to these when it is done
        for number in previous:
            signal.signal(number, server.stop)
        # modules and routes live as long as the process: looking through all of them for garbage stops every answer
        gc.collect()
        gc.freeze()
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        log.info("stopped while starting")
    finally:
        for number in previous:
            signal.signal(number, _interrupt)  # a second Ctrl-C does not wait for open rounds
        supervisor.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _check_store(settings: Settings) -> None:
    """DatabaseUnusable: it cannot be used as it is."""
    database = Database(settings.database)
    try:
        migrate(database)
    finally:
        database.close()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def web_config(app: FastAPI, *, port: int = 0, stop_seconds: int = 5) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        app,
        port=port,
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=stop_seconds,
    )


class _Server(uvicorn.Server):
    """Stops the event streams, which would never end by themselves, and lets the worker drain meanwhile."""

    def __init__(self, app: FastAPI, supervisor: Supervisor, ready: Callable[[], None]) -> None:
        super().__init__(web_config(app))
        self._services: Services = app.state.services
        self._supervisor = supervisor
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._supervisor.request_stop()
        self._services.events.close_soon()
        self._services.rehearsals.close_soon()
        super().handle_exit(sig, frame)

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        self.should_exit = True
        self._supervisor.request_stop()


def listen(host: str, port: int) -> socket.socket:
    """A socket on the port, or on the next free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + PORT_TRIES, 65_536)) if port else (0,):
        # asyncio sends at once (TCP_NODELAY) only where the protocol is told; else an answer waits 40 ms for an ACK
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host.strip("[]"), candidate))
            listener.listen(2048)  # now: until somebody listens, another process could still take the port
        except OSError as error:
            listener.close()
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            continue
        if candidate != port:
            log.warning("port %d is taken, using %d", port, candidate)
        return listener
    raise OSError(errno.EADDRINUSE, f"no free port from {port} to {port + PORT_TRIES - 1}")


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def submit_starter(services: Services) -> int:
    """The starter comparison, once, into a store that has no experiment yet; returns how many were submitted."""
    specs = [ExperimentSpec.parse(spec) for spec in starter.SPECS]
    with services.database.write() as session:
        if experiments.count(session):
            return 0
        for spec in specs:
            experiments.submit(session, spec.canonical(), spec.fingerprint())
    services.queue.hint()
    return len(specs)


def _add_pages(app: FastAPI) -> None:
    app.include_router(pages.router)
    pages.mount_static(app)
    app.state.error_page = pages.error_page


def _complete_openapi(app: FastAPI) -> None:
    """Add the schemas of the documents that routes parse by themselves."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            parts = schema.setdefault("components", {}).setdefault("schemas", {})
            for model in (ExperimentSpec, SweepSpec, QueueChange, ArtifactWish, Extension):
                found = model.model_json_schema(ref_template="#/components/schemas/{model}")
                parts.update(found.pop("$defs", {}))
                parts[model.__name__] = found
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _version() -> str:
    try:
        return version("fedarena")
    except PackageNotFoundError:
        return "0"
