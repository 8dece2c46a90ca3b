"""The id of a scheduled message, and what may have become of it."""

from __future__ import annotations

import enum
import re
from typing import Any, Final, NamedTuple, Self

from journal.arguments import NOTHING_CHANGED, text, wrong_value
from journal.formats.envelope import LOGS, OFFSET_BITS, id_of

_FORM: Final = re.compile(r"([0-9])-([0-9]{1,12})-([0-9a-f]{8})")
_WANTED: Final = "the id of a scheduled message, as 3-1042-9f8e7d6c"


class State(enum.StrEnum):
    """What has become of a scheduled message."""

    WAITS = "waits"
    HELD = "held"
    """A prepared transaction takes it back if it is committed."""
    CANCELLED = "cancelled"
    SENT = "sent"
    UNKNOWN = "not scheduled"
    """It never was, or was over a day ago."""
    UNREADABLE = "unreadable"
    """What the schedule's log has of it is damaged, so that nothing is known of it."""


class ScheduledId(NamedTuple):
    """The place of a scheduled message in the schedule: the index of its log, and its offset there. The checksum of its
    frame tells it from another one at the same place, after a backup was restored.

    As text it is ``3-1042-9f8e7d6c``.
    """

    log: int
    offset: int
    checksum: int

    @property
    def number(self) -> int:
        """The place as one number."""
        return id_of(self.log, self.offset)

    @property
    def place(self) -> tuple[int, int, int]:
        """The same as a plain tuple, as requests have it."""
        return self.log, self.offset, self.checksum

    def __str__(self) -> str:
        return f"{self.log}-{self.offset}-{self.checksum:08x}"

    @classmethod
    def checked(cls, log: int, offset: int, checksum: int, state: str = NOTHING_CHANGED) -> Self:
        """Return the id with these numbers; raises WrongValue if there is none."""
        if not (0 <= log < LOGS and 0 <= offset < 1 << OFFSET_BITS and 0 <= checksum < 1 << 32):
            raise wrong_value("id", f"{log}-{offset}-{checksum:x}"[:60], _WANTED, state)
        return cls(log, offset, checksum)

    @classmethod
    def of(cls, value: Any, state: str = NOTHING_CHANGED) -> Self:
        """Return the id itself, or that of a text; raises WrongType and WrongValue."""
        if isinstance(value, cls):
            return value
        match = _FORM.fullmatch(text("id", value, state))
        if match is None:
            raise wrong_value("id", value, _WANTED, state)
        return cls.checked(int(match[1]), int(match[2]), int(match[3], 16), state)
