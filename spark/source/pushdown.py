"""The wanted messages of a query, as far as they are known before reading.

Filters on topic, partition and offset decide what is read at all. Filters on the sender's time are applied to rows that
have been read; they skip whole segments only if the options bound the error of the senders' clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from spark.source.message_heads import Heads, Mask

NUMBERS = ("partition", "offset", "timestamp")
NEVER_NULL = frozenset({"topic", *NUMBERS})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass
class Bounds:
    """The wanted values of a number: from ``least`` to ``most``, inclusive, and if ``among``, only these."""

    least: int = _LEAST
    most: int = _MOST
    among: frozenset[int] | None = None

    def keep(self, values: Iterable[int]) -> None:
        """Allow only these from now on."""
        kept = frozenset(values)
        self.among = kept if self.among is None else self.among & kept
        self.least = max(self.least, min(self.among, default=_MOST))
        self.most = min(self.most, max(self.among, default=_LEAST))

    def allow(self, value: int) -> bool:
        """Return whether a value is wanted."""
        return self.least <= value <= self.most and (self.among is None or value in self.among)

    @property
    def is_free(self) -> bool:
        """Return whether every value is wanted."""
        return self.least == _LEAST and self.most == _MOST and self.among is None


@dataclass
class Wanted:
    """The filters that have been taken over, all of which must hold."""

    topics: frozenset[str] | None = None
    partition: Bounds = field(default_factory=Bounds)
    offset: Bounds = field(default_factory=Bounds)
    timestamp: Bounds = field(default_factory=Bounds)

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over the filters that are possible; yield the others, which Spark applies."""
        for each in filters:
            if not self._take(each):
                yield each

    def allows(self, topic: str, index: int) -> bool:
        """Return whether any message of a partition may be wanted."""
        return (self.topics is None or topic in self.topics) and self.partition.allow(index)

    def rows(self, heads: Heads) -> Heads:
        """Return the wanted messages; other partitions and offsets out of bounds have been left out before."""
        chosen: Mask | None = None
        if self.offset.among is not None:
            chosen = np.isin(heads.offset, list(self.offset.among))
        if not self.timestamp.is_free:
            time = (heads.timestamp >= self.timestamp.least) & (heads.timestamp <= self.timestamp.most)
            if self.timestamp.among is not None:
                time &= np.isin(heads.timestamp, list(self.timestamp.among))
            chosen = time if chosen is None else chosen & time
        return heads if chosen is None or chosen.all() else heads.chosen(chosen)

    def _take(self, each: Any) -> bool:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        if isinstance(each, IsNotNull):
            return name in NEVER_NULL
        if name == "topic":
            return self._take_topic(each)
        return name in NUMBERS and self._take_number(each, getattr(self, name))

    def _take_topic(self, each: Any) -> bool:
        names = _values(each)
        if names is None or not all(type(name) is str for name in names):
            return False
        kept: frozenset[str] = frozenset(names)
        self.topics = kept if self.topics is None else self.topics & kept
        return True

    @staticmethod
    def _take_number(each: Any, bounds: Bounds) -> bool:
        given = _values(each)
        wanted = given if given is not None else [getattr(each, "value", None)]
        numbers = [number for value in wanted if (number := _number(value)) is not None]
        if len(numbers) < len(wanted):
            return False
        match each:
            case EqualTo() | In():
                bounds.keep(numbers)
            case GreaterThan():
                bounds.least = max(bounds.least, numbers[0] + 1)
            case GreaterThanOrEqual():
                bounds.least = max(bounds.least, numbers[0])
            case LessThan():
                bounds.most = min(bounds.most, numbers[0] - 1)
            case LessThanOrEqual():
                bounds.most = min(bounds.most, numbers[0])
            case _:
                return False
        return True


def _values(each: Any) -> list[Any] | None:
    """Return the values of which a filter wants one."""
    if isinstance(each, EqualTo):
        return [each.value]
    return list(each.value) if isinstance(each, In) else None


def _number(value: Any) -> int | None:
    """Return a whole number, or a time in µs since 1970 UTC; None for other values of a filter."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None
