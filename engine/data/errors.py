"""What can be wrong with a data set."""

from dataclasses import dataclass
from typing import Literal

HowToGet = Literal["fetch", "import"]


@dataclass(frozen=True)
class Remedy:
    """How to get a data set. Which command does it is known to whoever offers one."""

    name: str
    how: HowToGet
    page: str = ""  # the publisher's, where there is no direct address

    def __str__(self) -> str:
        if self.how == "fetch":
            return "fetch it"
        return f"get it from its publisher ({self.page}), unpack it and import it" if self.page else "import it"


class DataError(Exception):
    """The data set cannot be used; the message says why and what to do."""


class DataMissing(DataError):
    """It is not in the data folder: where it was looked for, and how to get it."""

    def __init__(self, reason: str, remedy: Remedy | None = None) -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class DataDamaged(DataError):
    """A file is not what its format promises; the message names the file and the difference."""


class DataPresent(DataError):
    """What was to be brought in is there already, and was not to be replaced."""


class DataTooLarge(DataError):
    """It would not fit into memory."""
