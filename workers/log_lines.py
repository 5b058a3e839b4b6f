"""Keeps what a job logs, so that the dashboard can show it beside the experiment."""

import logging
import threading
from collections import deque

from app.store.logs import KEEP_LINES, Line

LOGGERS = ("workers", "engine", "py.warnings")


class LogLines(logging.Handler):
    """Collects lines from the project's loggers; `take` hands over what came since the last call."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[Line] = deque(maxlen=KEEP_LINES)
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        line = Line(record.created, record.levelname.lower(), record.getMessage())
        with self._guard:
            self._lines.append(line)

    def take(self) -> list[Line]:
        with self._guard:
            lines = list(self._lines)
            self._lines.clear()
        return lines

    def put_back(self, lines: list[Line]) -> None:
        """They could not be stored."""
        with self._guard:
            self._lines.extendleft(reversed(lines))

    def __enter__(self) -> "LogLines":
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)


def log_as_set(level: str) -> None:
    """In a child that Celery started with a level of its own."""
    for name in ("app", *LOGGERS):
        logging.getLogger(name).setLevel(level.upper())
