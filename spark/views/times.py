"""Times in the form in which Spark takes them in rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(wall: int) -> datetime | None:
    """Return µs since 1970 UTC as a datetime; None for 0, which means never."""
    return _EPOCH + timedelta(microseconds=wall) if wall else None
