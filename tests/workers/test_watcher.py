"""A watching thread outlasts every error, and says when it has seen nothing for too long."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

import workers
from tests.services import wait_until
from workers.watcher import Watcher

OUT_OF_REACH = OperationalError("SELECT 1", {}, Exception("database is locked"))
ERRORS = [ZeroDivisionError("a bug"), NoConnectionLeft("the pool is empty"), PermissionError("/pulse"), OUT_OF_REACH]


def watched(look: Callable[[], None], looks: int, **options: object) -> None:
    """A watcher until it has looked so often."""
    done = [0]

    def counted() -> None:
        done[0] += 1
        look()

    watcher = Watcher("test", counted, 0.01, **options)  # type: ignore[arg-type]
    watcher.start()
    wait_until(lambda: done[0] >= looks, what=f"{looks} looks")
    watcher.stop(10)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_logged_once_and_the_next_look_comes(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def look() -> None:
        raise error

    with caplog.at_level(logging.INFO):
        watched(look, looks=4)
    assert len([line for line in caplog.records if line.name == "workers.watcher"]) == 1


def test_an_error_after_a_good_look_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    looks = iter([True, True, False, True])

    def look() -> None:
        if next(looks, False):
            raise ZeroDivisionError("a bug")

    watched(look, looks=5)
    assert len([line for line in caplog.records if line.name == "workers.watcher"]) == 2


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_who_can_see_nothing_for_long_is_told_but_not_while_the_store_is_away(error: Exception) -> None:
    told = threading.Event()

    def look() -> None:
        raise error

    watched(look, looks=4, patience=0.0, blind=told.set)
    assert told.is_set() == (error is not OUT_OF_REACH)


def test_a_look_may_be_the_last_one() -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        watcher.end()

    watcher = Watcher("the last look", look, 0.01)
    watcher.start()
    wait_until(lambda: "the last look" not in {thread.name for thread in threading.enumerate()}, what="the end")
    assert looks == [1]


def test_every_thread_of_a_worker_is_watched_over_by_the_same_mechanism() -> None:
    """A thread with a loop of its own would end unseen at the first error nobody thought of."""
    folder = Path(workers.__file__).parent
    own = [path.name for path in sorted(folder.glob("*.py")) if "threading.Thread(" in path.read_text()]
    assert own == ["watcher.py"]
