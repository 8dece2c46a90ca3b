"""The settings of a topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypedDict

import msgspec

from journal.constants import KIB, MIB, SEGMENT_BYTES
from journal.errors import InvalidSetting
from journal.quantities import Bytes, Micros, Quantity, check_range, micros, quantities_of

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
"""Settings that may be None: the topic has no limit of its own."""


class TopicSettings(msgspec.Struct, array_like=True, frozen=True):
    """Storage settings of a topic. Sizes are in bytes, times in µs.

    ``force_messages`` and ``force_interval`` say when a partition's tail goes to its segment, ``segment_bytes`` when a
    segment rolls. ``retention_bytes`` and ``retention_age`` say what is kept at least (None: everything).
    ``max_message_bytes`` is the largest frame, also uncompressed (None: the broker's limit). With ``check_compressed``
    1 a compressed batch is opened when it arrives, to count its messages; with 0 the client's count is believed.
    Appended fields get defaults, so that older checkpoints stay readable.
    """

    force_messages: int = 1_000
    force_interval: Micros = 10_000_000
    segment_bytes: Bytes = SEGMENT_BYTES
    retention_bytes: Bytes | None = None
    retention_age: Micros | None = None
    max_message_bytes: Bytes | None = None
    check_compressed: int = 1

    def check(self) -> None:
        """Raise :class:`InvalidSetting`, naming field, value and range, for the first value out of range."""
        for name in self.__struct_fields__:
            check_setting(name, getattr(self, name))


QUANTITIES: Final = quantities_of(TopicSettings)
"""The quantity of each number."""


class TopicChoices(TypedDict, total=False):
    """The settings of a topic as keyword arguments; each one that is left out has its default.

    Durations are seconds or a ``timedelta``, sizes are bytes. :class:`TopicSettings` describes each of them.
    """

    force_messages: int
    force_interval: float | timedelta
    segment_bytes: int
    retention_bytes: int | None
    retention_age: float | timedelta | None
    max_message_bytes: int | None
    check_compressed: int


def topic_settings(choices: TopicChoices) -> TopicSettings:
    """Return the chosen settings, checked; raises :class:`InvalidSetting`, for an unknown name, too."""
    return TopicSettings(**{name: _chosen(name, value) for name, value in choices.items()})  # type: ignore[arg-type]


def _chosen(name: str, value: object) -> object:
    if QUANTITIES.get(name) is Quantity.DURATION and not (value is None and name in OPTIONAL):
        try:
            value = micros(value)
        except ValueError as error:
            raise InvalidSetting(f"setting {name}: {error}; nothing was changed") from None
    check_setting(name, value)
    return value


def check_setting(name: str, value: object) -> None:
    """Raise :class:`InvalidSetting` if the setting is unknown or cannot have that value, in µs or bytes."""
    if name not in RANGES:
        raise InvalidSetting(
            f"there is no setting {name!r}; known are {', '.join(RANGES)}; nothing was changed"
        )
    check_range(name, value, QUANTITIES[name], RANGES[name], optional=name in OPTIONAL)
