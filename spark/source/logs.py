"""What can be read, wherever it is stored: partitions' logs, parts of them, and losses of messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from journal.errors import TxBrokerError
from journal.formats.store_state import SegmentState
from journal.records.outcome_entry import ArchivedOutcome
from spark.source.message_heads import UnsoundBlock

log = logging.getLogger("txbroker.spark")


@dataclass(frozen=True)
class Log:
    """A partition's log, from ``start`` to ``end`` (exclusive): everything committed and forced.

    ``number`` is never reused: a topic that is made anew under an old name has other numbers. ``segments`` are known
    for a data directory only; ``bytes`` are those of all frames, roughly.
    """

    topic: str
    index: int
    number: int
    start: int
    end: int
    bytes: int
    segments: tuple[SegmentState, ...] = ()

    @property
    def name(self) -> str:
        """Return its name for people."""
        return f"{self.topic}-{self.index}"


class Start(NamedTuple):
    """A start of the broker, or of a log opened in a program: a copy uses its number again, not its nonce."""

    number: int
    nonce: bytes


class Slice(NamedTuple):
    """A part of a log that one task reads: offsets from ``first`` to ``end`` (exclusive)."""

    log: Log
    first: int
    end: int
    bytes: int = 0


class Points(NamedTuple):
    """How many bytes of a log lie below some of its offsets, both ascending."""

    offsets: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]


class Cursor(Protocol):
    """Reads a part of one log forward."""

    def read(self, offset: int, most: int) -> tuple[bytes, int]:
        """Return bytes from the frame that holds ``offset`` on, and that frame's offset.

        Not more than ``most`` bytes, but at least one whole frame; the bytes behind the last whole one begin another.
        Raises :class:`MessagesLost`.
        """

    def advance(self, taken: int, offset: int) -> None:
        """Note that ``taken`` bytes were whole frames; the next one is that of ``offset``."""

    def damaged(self, fault: UnsoundBlock) -> MessagesLost:
        """Return the error for a fault in the bytes that were read last."""

    def close(self) -> None:
        """Close what it holds open."""


class Logs(Protocol):
    """A data directory or a broker, for one planning or one task."""

    @property
    def identity(self) -> str:
        """Return the identity of the data, "" if unknown: offsets are valid only together with it."""

    @property
    def start(self) -> Start:
        """Return the newest start of these data."""

    def knows(self, start: Start) -> bool:
        """Return whether these data had this start, or it is so long ago that they may have forgotten it.

        Data that were set back to an older copy do not know the starts that followed the copy.
        """

    def logs(self, wanted: Callable[[str], bool]) -> list[Log]:
        """Return the logs of the wanted topics, sorted by topic and index."""

    def offset_for_time(self, log: Log, time: int, *, late: bool) -> int:
        """Return the first offset appended at ``time`` (wall clock, µs) or later, to within an entry of the index.

        Never above the true one; if ``late``, never below it.
        """

    def first_since(self, log: Log, time: int) -> int:
        """Return an offset below which nothing was appended at ``time`` or later, at the edge of a segment."""

    def points(self, log: Log, first: int, end: int) -> Points:
        """Return the known places of the bytes between two offsets."""

    def archived_between(self, archive: Log, part: Slice) -> tuple[int, int]:
        """Return where in the outcome archive the transactions of a part are.

        They are from an offset of the archive on, as long as their journal time is not above the second number.
        """

    def archive_waiting(self) -> list[ArchivedOutcome]:
        """Return entries of the outcome archive that its log does not have yet."""

    def cursor(self, part: Slice) -> Cursor:
        """Return a cursor over a part."""

    def close(self) -> None:
        """Close what it holds open."""


class MessagesLost(TxBrokerError):
    """Messages that were to be read no longer exist, or are damaged: offsets ``first`` to ``last``, inclusive."""

    def __init__(self, message: str, log: Log, first: int, last: int) -> None:
        super().__init__(message, log, first, last)
        self.message = message
        self.log = log
        self.first = first
        self.last = last

    def __str__(self) -> str:
        return self.message


def lost(log: Log, first: int, last: int, why: str, advice: str = "") -> MessagesLost:
    """Return the error for offsets ``first`` to ``last``, inclusive, which cannot be read because of ``why``."""
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return MessagesLost(
        f"{log.name}: {offsets} cannot be read: {why}. {advice or 'Nothing was changed'}; "
        "with failOnDataLoss=false what is lost is skipped, with a warning",
        log,
        first,
        last,
    )


class Losses:
    """What to do about a loss: it fails the query, or it is logged and skipped."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def report(self, error: MessagesLost) -> None:
        """Raise the error, or log it."""
        if self._fail:
            raise error
        log.warning("skipped, for failOnDataLoss is false: %s", error)


def names_of(logs: Sequence[Log]) -> set[str]:
    """Return the topics of these logs."""
    return {each.topic for each in logs}
