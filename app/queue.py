"""The queue: owns the Celery app and sends one kind of message, the hint that there is work."""

import logging
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import KombuError

from app.config import Settings

log = logging.getLogger(__name__)

TASK = "fedarena.look"
QUEUE = "fedarena"
VISIBILITY_SECONDS = 86_400
"""Redis gives an unacknowledged message to another worker after this. A second delivery finds nothing to claim."""


def make_celery(settings: Settings) -> Celery:
    """JSON only, no results, late acknowledgement, one fresh process a task."""
    celery = Celery("fedarena", broker=settings.broker, include=["workers.tasks"], set_as_current=False)
    celery.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        broker_transport_options=_transport_options(settings),
        visibility_timeout=VISIBILITY_SECONDS,
        worker_prefetch_multiplier=1,
        worker_pool="prefork",
        worker_pool_start_method="spawn",  # a forked torch hangs
        worker_concurrency=1,
        worker_max_tasks_per_child=1,
        worker_proc_alive_timeout=60,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=2,
        task_publish_retry=False,
        enable_utc=True,
    )
    return celery


def _transport_options(settings: Settings) -> dict[str, Any]:
    if urlsplit(settings.broker).scheme == "filesystem":
        folders = {name: settings.hints_folder / name for name in ("messages", "control")}
        for folder in folders.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        return {
            "data_folder_in": str(folders["messages"]),
            "data_folder_out": str(folders["messages"]),
            "control_folder": str(folders["control"]),
        }
    return {
        "visibility_timeout": VISIBILITY_SECONDS,
        "health_check_interval": 30,
        "socket_keepalive": True,
        "socket_connect_timeout": 2,
        "socket_timeout": 10,
        "global_keyprefix": "fedarena:",
    }


def _errors(connection: Connection) -> tuple[type[BaseException], ...]:
    """What this kind of broker raises when it is out of reach."""
    return (*connection.connection_errors, *connection.channel_errors, KombuError, OSError)


class Queue:
    """Sends hints from a thread of its own, so that nobody waits for the broker."""

    def __init__(self, settings: Settings) -> None:
        self.celery = make_celery(settings)
        self._wanted = threading.Event()
        self._count = 0
        self._stopped = False
        self._broken = False
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._state_lock = threading.Lock()

    def hint(self, count: int = 1) -> None:
        """There may be work for so many. Returns at once; a silent broker is logged and made up for later."""
        with self._state_lock:
            self._count = max(self._count, count)
        with self._start_lock:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._send_when_wanted, name="hints", daemon=True)
                self._thread.start()
        self._wanted.set()

    def send(self, count: int = 1) -> bool:
        """Send hints now; False: the broker did not take them."""
        connection = self.celery.connection_for_write()
        try:
            with connection:
                for _ in range(count):
                    self.celery.send_task(TASK, connection=connection, queue=QUEUE, retry=False, ignore_result=True)
        except _errors(connection) as error:
            if self._turns(broken=True):
                log.warning("the broker does not answer (%s); experiments stay queued and will be offered again", error)
            return False
        if self._turns(broken=False):
            log.info("the broker answers again")
        return True

    def _turns(self, *, broken: bool) -> bool:
        """Whether this is news; asked by several threads, so that each change is logged once."""
        with self._state_lock:
            news = self._broken != broken
            self._broken = broken
        return news

    def outstanding(self) -> int | None:
        """Hints that no worker has taken yet; None: the broker does not answer."""
        connection = self.celery.connection_for_read()
        try:
            with connection, connection.channel() as channel:
                queue = self.celery.amqp.queues[QUEUE](channel)
                return int(queue.queue_declare().message_count)
        except _errors(connection) as error:
            log.debug("cannot count hints: %s", error)
            return None

    def close(self) -> None:
        with self._start_lock:
            self._stopped = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self.celery.close()

    def _send_when_wanted(self) -> None:
        while not self._stopped:
            self._wanted.wait()
            self._wanted.clear()
            with self._state_lock:
                count, self._count = self._count, 0
            if not self._stopped:
                self.send(count)
