"""What can be read, wherever it lies: partitions' logs, parts of them, and the messages that are not there any more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from journal.errors import TxBrokerError
from journal.formats.outcome_entry import ArchivedOutcome
from journal.formats.store_state import SegmentState
from spark.source.heads import UnsoundBlock

log = logging.getLogger("txbroker.spark")


@dataclass(frozen=True)
class Log:
    """A partition's log, from ``start`` to ``end`` (exclusive): all that is committed there, and forced.

    ``number`` is never reused: a topic that is made anew under an old name has other numbers. ``segments`` are known
    of a data directory only; ``bytes`` are those of all frames, roughly.
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
        """For people."""
        return f"{self.topic}-{self.index}"


class Start(NamedTuple):
    """A start of the broker, or of a log opened in a program: its number comes again in a copy, its nonce does not."""

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
        """Bytes from the frame that holds ``offset`` on, and that frame's offset.

        Not more than ``most`` bytes, but at least one whole frame; what follows the last whole one is the beginning of
        another. Raises :class:`MessagesLost`.
        """

    def advance(self, taken: int, offset: int) -> None:
        """So many of the bytes were whole frames; the next one is that of ``offset``."""

    def damaged(self, fault: UnsoundBlock) -> MessagesLost:
        """The error for what is wrong with the bytes that were read last."""

    def close(self) -> None:
        """Give back what it holds open."""


class Logs(Protocol):
    """A data directory or a broker, for one planning or one task."""

    @property
    def identity(self) -> str:
        """Which data this is, "" if it does not say: offsets mean something only together with it."""

    @property
    def start(self) -> Start:
        """The newest start of these data."""

    def knows(self, start: Start) -> bool:
        """Whether these data had this start, or it is so long ago that they may have forgotten it.

        Data that were set back to an older copy do not know the starts that followed the copy.
        """

    def logs(self, wanted: Callable[[str], bool]) -> list[Log]:
        """The logs of the topics that are wanted, sorted by topic and index."""

    def offset_for_time(self, log: Log, time: int, *, late: bool) -> int:
        """The first offset appended at ``time`` (wall clock, µs) or later, to within an entry of the index.

        Never above the true one; if ``late``, never below it.
        """

    def first_since(self, log: Log, time: int) -> int:
        """An offset below which nothing was appended at ``time`` or later, at the edge of a segment."""

    def points(self, log: Log, first: int, end: int) -> Points:
        """What is known of where the bytes between two offsets lie."""

    def archived_between(self, archive: Log, part: Slice) -> tuple[int, int]:
        """Where in the outcome archive to look for the transactions of a part.

        From an offset of the archive on, as long as their journal time is not above the second number.
        """

    def archive_waiting(self) -> list[ArchivedOutcome]:
        """Entries of the outcome archive that its log does not have yet."""

    def cursor(self, part: Slice) -> Cursor:
        """Read a part."""

    def close(self) -> None:
        """Give back what it holds open."""


class MessagesLost(TxBrokerError):
    """Messages that were to be read are not there any more, or damaged: offsets ``first`` to ``last``, inclusive."""

    def __init__(self, message: str, log: Log, first: int, last: int) -> None:
        super().__init__(message, log, first, last)
        self.message = message
        self.log = log
        self.first = first
        self.last = last

    def __str__(self) -> str:
        return self.message


def lost(log: Log, first: int, last: int, why: str, advice: str = "") -> MessagesLost:
    """The error for offsets ``first`` to ``last``, inclusive, which cannot be read because of ``why``."""
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return MessagesLost(
        f"{log.name}: {offsets} cannot be read: {why}. {advice or 'Nothing was changed'}; "
        "with failOnDataLoss=false what is lost is skipped, with a warning",
        log,
        first,
        last,
    )


class Losses:
    """What becomes of a loss: it fails the query, or it is logged and skipped."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def report(self, error: MessagesLost) -> None:
        """Raise the error, or log it."""
        if self._fail:
            raise error
        log.warning("skipped, for failOnDataLoss is false: %s", error)


def names_of(logs: Sequence[Log]) -> set[str]:
    """The topics of these logs."""
    return {each.topic for each in logs}
