"""The outcome archive, read by Spark: the transactions of messages, and how transactions ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from journal.errors import UnknownTopic
from journal.records.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome, unpack
from spark.source.logs import Log, Logs, Losses, Slice
from spark.source.message_heads import Heads
from spark.source.messages import heads_of
from spark.source.options import NOTHING_READ


class Origins(NamedTuple):
    """Ranges of one log, ascending, each with the transaction of its messages."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    numbers: pa.Array
    xids: pa.Array

    def of(self, heads: Heads) -> pa.Array:
        """Return for each message the number of its range; null if it is in none."""
        place = np.searchsorted(self.first, heads.offset, "right") - 1
        within = place >= 0
        within[within] = heads.offset[within] < self.end[place[within]]
        return pa.array(place, mask=~within)


def archive_log(logs: Logs) -> Log | None:
    """Return the archive's log, if there is one."""
    return next(iter(logs.logs(lambda topic: topic == OUTCOMES_TOPIC)), None)


def checked_archive(logs: Logs, place: str) -> Log:
    """Return the archive's log; raises UnknownTopic if there is none."""
    found = archive_log(logs)
    if found is None:
        raise UnknownTopic(
            f"{place} keeps no outcome archive, so which transactions messages came in is not known; {NOTHING_READ}. "
            "The setting outcome_archive turns it on, for transactions from then on"
        )
    return found


def entries(logs: Logs, part: Slice, losses: Losses) -> Iterator[ArchivedOutcome]:
    """Yield the archive's entries in a part of its log, in the order of the decisions."""
    for _, entry in _placed(logs, part, losses):
        yield entry


def numbered_entries(logs: Logs, part: Slice, losses: Losses) -> Iterator[tuple[int, ArchivedOutcome]]:
    """Yield the archive's entries from a part on with their offsets, also those that its log does not have yet."""
    yield from _placed(logs, part, losses)
    yield from enumerate(logs.archive_waiting(), part.log.end)


def _placed(logs: Logs, part: Slice, losses: Losses) -> Iterator[tuple[int, ArchivedOutcome]]:
    for heads in heads_of(logs, part, losses):
        begin = heads.content + heads.attribute
        for offset, first, end in zip(heads.offset.tolist(), begin.tolist(), heads.end.tolist(), strict=True):
            yield offset, unpack(heads.data[first:end])


def origins(logs: Logs, archive: Log, part: Slice, losses: Losses) -> Origins:
    """Return the transactions of a part's messages, as far as the archive goes back."""
    log = part.log
    first, last = logs.archived_between(archive, part)
    found: list[tuple[int, int, str, str | None]] = []

    def take(entry: ArchivedOutcome) -> None:
        for at in entry.parts:
            if (
                at.number == log.number
                and at.base_offset < part.end
                and at.base_offset + at.count > part.first
            ):
                xid = None if entry.xid is None else str(entry.xid)
                found.append((at.base_offset, at.base_offset + at.count, str(entry.number), xid))

    for entry in entries(logs, Slice(archive, first, archive.end), losses):
        if entry.at > last:
            break
        take(entry)
    for entry in logs.archive_waiting():
        take(entry)
    found.sort()
    return Origins(
        np.array([each[0] for each in found], np.int64),
        np.array([each[1] for each in found], np.int64),
        pa.array([each[2] for each in found], pa.string()),
        pa.array([each[3] for each in found], pa.string()),
    )
