"""The plan of an experiment: its place in the queue, when it may run and what ends it early; never what it computes."""

import re
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

MOST_PRIORITY = 100
MINUTES_A_DAY = 24 * 60
_OFFSET = re.compile(r"[+-](0\d|1[0-4]):[0-5]\d")
TIME = r"([01]?\d|2[0-3]):([0-5]\d)"
_TIME = re.compile(TIME)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
FIRST_MOMENT, LAST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""What the database can hold and every time zone can show."""


def _is_written_out(value: Any) -> Any:
    """A bare number would be read as seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return value
    raise ValueError(f"must be a moment like 2027-01-31T22:00:00+01:00, but got {value!r:.80}")


def _is_near(value: datetime) -> datetime:
    if not FIRST_MOMENT <= value < LAST_MOMENT:
        raise ValueError(f"must be a moment from 1970 to 9999, but got {value.isoformat()}")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_is_written_out), AfterValidator(_is_near)]


class Window(BaseModel):
    """Part of every day in which an experiment may run; it may lead over midnight."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    begin: str = Field(alias="from", description="HH:MM", json_schema_extra={"pattern": f"^{TIME}$"})
    end: str = Field(
        alias="to", description="HH:MM, the first minute outside", json_schema_extra={"pattern": f"^{TIME}$"}
    )
    zone: str = Field(
        "UTC", max_length=64, description="Time zone by its IANA name, whose present offset is used, or +02:00"
    )

    @classmethod
    def parse(cls, text: str, zone: str = "UTC") -> Self:
        """From the short form `22:00-08:00`; ValueError says what is wrong."""
        begin, dash, end = text.partition("-")
        if not dash:
            raise ValueError(f"a window looks like 22:00-08:00, but got {text!r}")
        return cls(begin=begin.strip(), end=end.strip(), zone=zone)

    @classmethod
    def of_minutes(cls, begin: int, end: int) -> Self:
        return cls(begin=clock_text(begin), end=clock_text(end), zone="UTC")

    @field_validator("begin", "end")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        _minutes(value)
        return value

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, value: str) -> str:
        try:
            _zone(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"must be a time zone like Europe/Berlin or +02:00, but got {value!r}") from None
        return value

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if _minutes(self.begin) == _minutes(self.end):
            raise ValueError(f"a window must not begin and end at the same minute, but got {self.begin} twice")
        return self

    @property
    def length(self) -> int:
        """Minutes of a day in which it is open."""
        return (_minutes(self.end) - _minutes(self.begin)) % MINUTES_A_DAY

    def minutes(self, today: datetime | None = None) -> tuple[int, int]:
        """Minutes of the day in UTC, by the zone's offset of today."""
        offset = (today or datetime.now(UTC)).astimezone(_zone(self.zone)).utcoffset()
        assert offset is not None
        shift = int(offset.total_seconds()) // 60
        return (_minutes(self.begin) - shift) % MINUTES_A_DAY, (_minutes(self.end) - shift) % MINUTES_A_DAY


class StopRule(BaseModel):
    """Ends an experiment as finished before its last round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: float | None = Field(None, gt=0, le=1, description="Stop when this accuracy is reached")
    patience: int | None = Field(
        None, ge=1, le=100_000, description="Stop when so many rounds brought no accuracy above the best before them"
    )
    min_gain: float = Field(0.0, ge=0, le=1, description="What counts as above, with patience")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.target is None and self.patience is None:
            raise ValueError("a stop rule needs a target or a patience, but got neither")
        if self.patience is None and self.min_gain:
            raise ValueError(f"min_gain belongs to a patience, but got min_gain = {self.min_gain} alone")
        return self


class Plan(BaseModel):
    """Options of a submission, beside the spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher ones are taken first")
    start_after: Moment | None = Field(None, description="Not before this moment; ISO 8601 with a zone")
    window: Window | None = None
    stop: StopRule | None = None

    def columns(self) -> dict[str, Any]:
        """The same as the table keeps it."""
        begin, end = self.window.minutes() if self.window else (None, None)
        return {
            "priority": self.priority,
            "start_after": self.start_after.timestamp() if self.start_after else 0.0,
            "window_from": begin,
            "window_to": end,
            "stop": self.stop.model_dump(exclude_defaults=True) if self.stop else None,
        }


def _zone(name: str) -> tzinfo:
    if _OFFSET.fullmatch(name):
        return datetime.strptime(name, "%z").tzinfo or UTC
    return ZoneInfo(name)


def _minutes(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"a time of day looks like 22:00, but got {text!r}")
    return 60 * int(found[1]) + int(found[2])


def clock_text(minutes: int) -> str:
    """A minute of the day as HH:MM."""
    minutes %= MINUTES_A_DAY
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
