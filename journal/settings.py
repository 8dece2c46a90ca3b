"""What can be set per topic about its storage."""

from __future__ import annotations

from typing import Final

import msgspec

from journal.constants import KIB, MIB, SEGMENT_BYTES
from journal.errors import InvalidSetting

MAX_INTERVAL = 366 * 24 * 3600 * 1_000_000
MAX_AGE = 100 * MAX_INTERVAL

RANGES: Final[dict[str, tuple[int, int]]] = {
    "force_messages": (1, 1_000_000_000),
    "force_interval": (1_000, MAX_INTERVAL),
    "segment_bytes": (64 * KIB, 2048 * MIB),
    "retention_bytes": (0, 1 << 62),
    "retention_age": (0, MAX_AGE),
    "max_message_bytes": (64, 1 << 30),
    "check_compressed": (0, 1),
}
"""Least and greatest value of each setting, both allowed."""

OPTIONAL = frozenset({"retention_bytes", "retention_age", "max_message_bytes"})
"""Settings that may be None: no limit of the topic's own."""


class TopicSettings(msgspec.Struct, array_like=True, frozen=True):
    """Storage settings of a topic; sizes in bytes, times in µs.

    ``force_messages`` and ``force_interval`` say when a partition's tail goes to its segment,
    ``segment_bytes`` when a segment rolls. ``retention_bytes`` and ``retention_age`` say what is kept at
    least (None: everything), ``max_message_bytes`` is the largest frame, also opened (None: the broker's limit).
    ``check_compressed`` says whether a compressed batch is opened when it comes in, to count what it holds (1), or
    believed (0). Appended fields get defaults, so that older checkpoints stay readable.
    """

    force_messages: int = 1_000
    force_interval: int = 10_000_000
    segment_bytes: int = SEGMENT_BYTES
    retention_bytes: int | None = None
    retention_age: int | None = None
    max_message_bytes: int | None = None
    check_compressed: int = 1

    def check(self) -> None:
        """Raise :class:`InvalidSetting`, naming field, value and range, for the first value out of range."""
        for name in self.__struct_fields__:
            check_setting(name, getattr(self, name))


def check_setting(name: str, value: object) -> None:
    """Raise :class:`InvalidSetting` if the setting is unknown or cannot have that value."""
    if name not in RANGES:
        raise InvalidSetting(
            f"there is no setting {name!r}; known are {', '.join(RANGES)}; nothing was changed"
        )
    least, greatest = RANGES[name]
    if value is None and name in OPTIONAL:
        return
    if type(value) is not int or not least <= value <= greatest:
        none = " or None" if name in OPTIONAL else ""
        raise InvalidSetting(
            f"setting {name} is {value!r}, it must be a whole number from {least} to {greatest}{none}; "
            "nothing was changed"
        )
