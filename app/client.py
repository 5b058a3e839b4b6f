"""The Python client of a running FedArena: submit, watch and fetch experiments; needs httpx alone."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import httpx

FINISHED = frozenset({"finished", "failed", "cancelled", "diverged", "not_applicable"})
PASSING = frozenset({429, 502, 503, 504})
"""The server is busy, or is being started again: the same request may succeed a little later."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between attempts to reach a server that was there before; each pause is twice as long as the last."""

Answer = TypeVar("Answer")


class ApiError(Exception):
    """The server refused a request, with its reasons."""

    def __init__(self, status: int, errors: list[dict[str, Any]], retry_after: float = 0.0) -> None:
        lines = [f"{item['field']}: {item['message']}" if item.get("field") else item["message"] for item in errors]
        super().__init__("; ".join(lines))
        self.status = status
        self.errors = errors
        self.retry_after = retry_after  # seconds


class Unreachable(Exception):
    """No server answers at the address."""


@dataclass(frozen=True)
class LiveEvent:
    """One change: kind `state` with an experiment, or kind `round` with a record."""

    seq: int
    kind: str
    data: dict[str, Any]


class FedArena:
    """A connection to one server; use it as a context manager."""

    def __init__(self, address: str = "http://127.0.0.1:8765", *, timeout: float = 30.0) -> None:
        self.address = address.rstrip("/")
        self._http = httpx.Client(base_url=self.address, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, spec: Mapping[str, Any], *, key: str | None = None, **plan: Any) -> dict[str, Any]:
        """Queue an experiment; with a key, a repeated call makes no second one.

        `plan`: priority, start_after (a datetime with a zone), window ("22:00-08:00"), zone, stop_target,
        stop_patience, stop_min_gain.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._call("POST", "/api/experiments", json=dict(spec), headers=headers, params=_plain(plan))

    def experiment(self, experiment: str) -> dict[str, Any]:
        return self._call("GET", f"/api/experiments/{experiment}")

    def experiments(
        self, *, state: str | None = None, search: str = "", limit: int = 50, before: str | None = None
    ) -> dict[str, Any]:
        """A page, newest first: `items` and `next`."""
        query = {"state": state, "search": search or None, "limit": limit, "before": before}
        return self._call("GET", "/api/experiments", params={k: v for k, v in query.items() if v is not None})

    def rounds(self, experiment: str, *, after: int = -1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call(
            "GET", f"/api/experiments/{experiment}/rounds", params={"after": after}
        )["rounds"]
        return found

    def cancel(self, experiment: str) -> dict[str, Any]:
        return self._call("POST", f"/api/experiments/{experiment}/cancel")

    def pause(self, experiment: str) -> dict[str, Any]:
        """A running one is paused after its present round."""
        return self._call("POST", f"/api/experiments/{experiment}/pause")

    def resume(self, experiment: str) -> dict[str, Any]:
        return self._call("POST", f"/api/experiments/{experiment}/resume")

    def change_queue(self, experiment: str, **change: Any) -> dict[str, Any]:
        """`change`: priority, start_after, window ({"from", "to", "zone"}); None takes a restriction away."""
        return self._call("PATCH", f"/api/experiments/{experiment}/queue", json=_texts(change))

    def retry(self, experiment: str) -> dict[str, Any]:
        """The new experiment."""
        return self._call("POST", f"/api/experiments/{experiment}/retry")

    def extend(self, experiment: str, rounds: int, *, key: str | None = None) -> dict[str, Any]:
        """The experiment with another number of rounds that has the common ones from the beginning.

        With more rounds it resumes, with fewer it is finished at once; `told` says how. One with the same result that
        is there already is given back.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._call("POST", f"/api/experiments/{experiment}/extend", json={"rounds": rounds}, headers=headers)

    def delete(self, experiment: str) -> dict[str, Any]:
        """Hide an ended experiment; `undelete` within a day brings it back."""
        return self._call("DELETE", f"/api/experiments/{experiment}")

    def undelete(self, experiment: str) -> dict[str, Any]:
        return self._call("POST", f"/api/experiments/{experiment}/undelete")

    def log(self, experiment: str, *, after: int = 0) -> list[dict[str, Any]]:
        """What the workers said while they ran it."""
        answer = self._call("GET", f"/api/experiments/{experiment}/log", params={"after": after})
        lines: list[dict[str, Any]] = answer["lines"]
        return lines

    def workers(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._call("GET", "/api/workers")["items"]
        return items

    def want(self, experiment: str, kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for an artifact of a finished experiment; the same wish again gives the same one."""
        body = {"kind": kind, "parameters": dict(parameters)}
        return self._call("POST", f"/api/experiments/{experiment}/artifacts", json=body)

    def artifact(self, artifact: str) -> dict[str, Any]:
        return self._call("GET", f"/api/artifacts/{artifact}")

    def artifact_file(self, artifact: str) -> bytes:
        """Its content, once it is ready."""
        return self._answer("GET", f"/api/artifacts/{artifact}/file").content

    def checkpoint(self, experiment: str, target: Path) -> Path:
        """Write its newest checkpoint to a file, a tar that `fedarena run` continues without a service."""
        part = target.with_name(f"{target.name}.part")
        try:
            with self._http.stream("GET", f"/api/experiments/{experiment}/checkpoint") as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise _refused(answer)
                with part.open("wb") as file:
                    for piece in answer.iter_bytes():
                        file.write(piece)
            return part.rename(target)
        except httpx.TransportError as error:
            raise Unreachable(f"{self.address} did not send the whole checkpoint: {error}") from error
        finally:
            part.unlink(missing_ok=True)  # what a broken download left

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The complete spec and its fingerprint; nothing is stored."""
        return self._call("POST", "/api/check", json=dict(spec))

    def submit_sweep(self, document: Mapping[str, Any] | str, *, key: str | None = None, **plan: Any) -> dict[str, Any]:
        """Queue a sweep from plain values or YAML text; with a key, a repeated call makes no second one.

        `plan`, instead of what the document says: priority, start_after (a datetime with a zone), window
        ("22:00-08:00"); zone, for a window that names none.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._call("POST", "/api/sweeps", params=_plain(plan), **_document(document, headers))

    def check_sweep(self, document: Mapping[str, Any] | str, *, rehearse: bool = False, **plan: Any) -> dict[str, Any]:
        """What a sweep would run, what is wrong with it, and what it will cost; nothing is stored.

        `rehearse` also tries two rounds of what was never measured, for some seconds at most; `plan` as in
        `submit_sweep`.
        """
        params = {"rehearse": rehearse, **_plain(plan)}
        return self._call("POST", "/api/sweeps/check", params=params, **_document(document, {}))

    def sweep(self, sweep: str) -> dict[str, Any]:
        """Progress, time left, and its cells with their experiments."""
        return self._call("GET", f"/api/sweeps/{sweep}")

    def sweeps(self, *, limit: int = 50, before: str | None = None) -> dict[str, Any]:
        """A page, newest first: `items` and `next`."""
        query = {"limit": limit, "before": before}
        return self._call("GET", "/api/sweeps", params={k: v for k, v in query.items() if v is not None})

    def cancel_sweep(self, sweep: str) -> dict[str, Any]:
        return self._call("POST", f"/api/sweeps/{sweep}/cancel")

    def pause_sweep(self, sweep: str) -> dict[str, Any]:
        """Its running experiments are paused after their present round."""
        return self._call("POST", f"/api/sweeps/{sweep}/pause")

    def resume_sweep(self, sweep: str) -> dict[str, Any]:
        return self._call("POST", f"/api/sweeps/{sweep}/resume")

    def change_sweep_queue(self, sweep: str, **change: Any) -> dict[str, Any]:
        """As `change_queue`, for all its experiments that have not ended."""
        return self._call("PATCH", f"/api/sweeps/{sweep}/queue", json=_texts(change))

    def retry_sweep(self, sweep: str, *, cell: int | None = None) -> dict[str, Any]:
        """Run those again, of all or of one cell counted from 0, that failed, diverged or were cancelled."""
        return self._call("POST", f"/api/sweeps/{sweep}/retry", params=_plain({"cell": cell}))

    def follow_sweep(self, sweep: str, *, every: float = 2.0) -> Iterator[dict[str, Any]]:
        """The sweep now and after each change, until all its experiments have ended.

        Once the server has answered, one that is busy or away is waited for, however long that takes.
        """
        view, last = self.sweep(sweep), None
        while True:
            if (view["counts"], view["rounds_done"]) != last:
                last = (view["counts"], view["rounds_done"])
                yield view
            if set(view["counts"]) <= FINISHED:
                return
            time.sleep(every)
            view = _patiently(lambda: self.sweep(sweep))

    def wait_sweep(self, sweep: str, *, every: float = 2.0) -> dict[str, Any]:
        """The sweep once all its experiments have ended."""
        *_, last = self.follow_sweep(sweep, every=every)
        return last

    def sweep_table(self, sweep: str) -> list[dict[str, Any]]:
        """A dict a row: the swept values, and mean and deviation over the finished seeds; accuracies are fractions."""
        return [
            {
                **cell["values"],
                "seeds": 0 if cell["best"] is None else cell["best"]["seeds"],
                **{
                    f"{name}_{part}": None if cell[name] is None else cell[name][part]
                    for name in ("best", "final")
                    for part in ("mean", "std")
                },
            }
            for cell in self.sweep(sweep)["cells"]
        ]

    def sweep_choices(self, sweep: str) -> list[dict[str, Any]]:
        """What `report.choose` of the document asks for: a dict a group of cells, chosen on validation and on test.

        Empty where the document does not ask, or nothing has finished.
        """
        found = self.sweep(sweep)["choices"]
        return [] if found is None else list(found["groups"])

    def catalog(self) -> dict[str, Any]:
        return self._call("GET", "/api/catalog")

    def events(self, experiment: str | None = None, *, after: int | None = None) -> Iterator[LiveEvent]:
        """Changes as they come. A dropped connection is taken up again where it was, so nothing is lost.

        Once the server has answered, one that is busy or away is waited for, however long that takes.
        """
        return self._events(experiment, after, answered=False)

    def _events(self, experiment: str | None, after: int | None, answered: bool) -> Iterator[LiveEvent]:
        params = {} if experiment is None else {"experiments": experiment}
        pauses = _pauses()
        while True:
            headers = {} if after is None else {"Last-Event-ID": str(after)}
            try:
                timeout = httpx.Timeout(30.0, read=60.0)
                with self._http.stream("GET", "/api/events", params=params, headers=headers, timeout=timeout) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                        raise _refused(answer)
                    answered, pauses = True, _pauses()
                    for event in _parse(answer.iter_lines()):
                        after = event.seq
                        if event.kind != "ping":  # which only tells how far the stream is
                            yield event
            except httpx.TransportError as error:
                if not answered:
                    self._nobody(error)
                time.sleep(next(pauses))
            except ApiError as error:
                if not answered or error.status not in PASSING:
                    raise
                time.sleep(max(next(pauses), error.retry_after))

    def watch(self, experiment: str) -> Iterator[LiveEvent]:
        """All rounds of an experiment, old and new, and its states, until it has ended."""
        first = self.experiment(experiment)
        last = -1
        for record in _patiently(lambda: self.rounds(experiment)):
            last = record["round"]
            yield LiveEvent(0, "round", {"experiment": experiment, **record})
        yield LiveEvent(first["seq"], "state", first)
        if first["state"] in FINISHED:
            return
        for event in self._events(experiment, first["seq"], answered=True):
            if event.kind == "round":
                if event.data["round"] <= last:
                    continue
                last = event.data["round"]
            yield event
            if event.kind == "state" and event.data["state"] in FINISHED:
                return

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._answer(method, path, **options).json()
        return found

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            self._nobody(error)
        if answer.status_code >= 400:
            raise _refused(answer)
        return answer

    def _nobody(self, error: httpx.TransportError) -> NoReturn:
        raise Unreachable(f"nobody answers at {self.address}; start it with: fedarena serve") from error


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """The answer of a server that was there before, asked again until it has time."""
    pauses = _pauses()
    while True:
        try:
            return ask()
        except Unreachable:
            time.sleep(next(pauses))
        except ApiError as error:
            if error.status not in PASSING:
                raise
            time.sleep(max(next(pauses), error.retry_after))


def _document(document: Mapping[str, Any] | str, headers: dict[str, str]) -> dict[str, Any]:
    """YAML is sent as it is, so that the server alone reads it."""
    if isinstance(document, str):
        return {"content": document.encode(), "headers": {**headers, "Content-Type": "application/yaml"}}
    return {"json": dict(document), "headers": headers}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As query parameters; what is None is left out."""
    return _texts({name: value for name, value in values.items() if value is not None})


def _texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Moments as texts."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _refused(answer: httpx.Response) -> ApiError:
    try:
        errors = answer.json()["errors"]
    except (ValueError, KeyError, TypeError):
        errors = [{"field": "", "message": f"the server answered with status {answer.status_code}", "value": None}]
    wait = answer.headers.get("Retry-After", "")
    return ApiError(answer.status_code, errors, float(wait) if wait.isdecimal() else 0.0)


def _parse(lines: Iterator[str]) -> Iterator[LiveEvent]:
    """The text/event-stream format, as far as our server uses it."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield LiveEvent(int(fields.get("id", "0")), fields.get("event", ""), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
