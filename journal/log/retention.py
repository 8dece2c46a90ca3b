"""Retention: a pure rule over sizes and times that says which segments may be removed. The caller removes them, after a
record of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal.settings import TopicSettings


class Sealed(Protocol):
    """The part of a segment without further messages that the rule needs."""

    @property
    def end_offset(self) -> int:
        """The offset after its last message."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of its frames."""

    @property
    def last_time(self) -> int:
        """Append time of its last message, µs."""


def retained_start(
    sealed: Sequence[Sealed], total_bytes: int, now: int, settings: TopicSettings
) -> int | None:
    """Return the offset at which the log should start, or None if nothing can be removed.

    ``sealed`` are the segments from the oldest on, without the active one: only whole segments are removed, so a log
    keeps at least ``retention_bytes`` (of ``total_bytes``, unflushed ones included) and each message at least
    ``retention_age`` µs. Either limit alone suffices to remove a segment; None is no limit. ``now`` is on the clock of
    the append times.
    """
    start = None
    for segment in sealed:
        total_bytes -= segment.frame_bytes
        if not (_is_surplus(total_bytes, settings) or _is_old(segment, now, settings)):
            break
        start = segment.end_offset
    return start


def _is_surplus(bytes_without_it: int, settings: TopicSettings) -> bool:
    return settings.retention_bytes is not None and bytes_without_it >= settings.retention_bytes


def _is_old(segment: Sealed, now: int, settings: TopicSettings) -> bool:
    return settings.retention_age is not None and now - segment.last_time > settings.retention_age
