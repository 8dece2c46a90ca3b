"""The check of the outcomes in the newest checkpoint against the outcome archive: both must agree about a transaction.

A checkpoint has every outcome that its client may still ask for; the archive has those of the time in which it was on.
If somebody changes one of the two, with checksums that fit, they disagree. Outcomes that the archive does not have are
compared with the logs, which must reach as far as they were placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import walk
from journal.interfaces import IFilesystem
from journal.records.outcome import Outcome
from journal.records.outcome_entry import NEVER_PLACED, ArchivedOutcome, unpack_frame
from journal.records.record import Messages
from journal.transactions.outcome_archive import head_of
from journal.transactions.table import remembered
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.walks.outcome_walk import archive_from, archive_state, walk_archive

_SAME: Final = (
    "state", "cause", "at", "wall", "began", "prepared", "xid", "by", "why", "owner", "heuristic", "messages", "bytes",
    "checksum",
)  # fmt: skip
"""The fields that both have, under the same names."""


class OutcomeCheck:
    """Follows the journal for entries that the archive's segments do not have yet; :meth:`ended` compares."""

    def __init__(self, filesystem: IFilesystem, newest: Checkpoint) -> None:
        self._filesystem = filesystem
        self._newest = newest
        self._state = archive_state(filesystem, newest)
        self._outcomes = {each.number: each for each in remembered(newest)}
        """The outcomes without a seen entry."""

    def follow(self, entry: JournalEntry) -> Iterator[Finding]:
        """Follow the next record; yield what is wrong with the entries that it puts into the archive."""
        state, sent = self._state, entry.record
        if state is None or not isinstance(sent, Messages) or sent.partition != state.number:
            return
        with suppress(InvalidFrame):  # the check of the archive against the journal reports it
            for offset, (at, size, _, _) in enumerate(walk(entry.data), sent.base_offset):
                if offset >= state.flushed_offset:
                    yield from self._take(unpack_frame(entry.data[at : at + size]))

    def ended(self) -> Iterator[Finding]:
        """Yield what is wrong; call it after the last record."""
        if not self._outcomes:
            return
        for entry in self._archived(min(each.at for each in self._outcomes.values())):
            yield from self._take(entry)
        ends = {store.number: store.end_offset for store in self._newest.stores}
        for outcome in self._outcomes.values():  # the archive has no entry of these
            for placed in outcome.placements:
                end = ends.get(placed.partition)
                if end is not None and placed.base_offset + placed.count > end:
                    what = f"the transaction is {outcome.describe()}, its messages go up to offset"
                    what = f"{what} {placed.base_offset + placed.count - 1} of a log that ends at {end}"
                    yield self._wrong(outcome, what)

    def _take(self, entry: ArchivedOutcome) -> Iterator[Finding]:
        outcome = self._outcomes.pop(entry.number, None)
        if outcome is not None and (differs := _difference(outcome, entry)):
            yield self._wrong(outcome, f"it has the transaction {differs}")

    def _archived(self, at: int) -> Iterator[ArchivedOutcome]:
        """Yield the archive's entries from that journal time on."""
        if self._state is not None:
            with suppress(OSError):  # the check of the archive's log reports it
                first = archive_from(self._filesystem, self._state, at)
                for each in walk_archive(self._filesystem, self._state, first):
                    if not isinstance(each, Finding):
                        yield each.outcome
        yield from (unpack_frame(frame) for frame in head_of(self._newest)[1])

    def _wrong(self, outcome: Outcome, what: str) -> Finding:
        path = filenames.checkpoint_file(self._newest.header.lsn)
        return Finding(path, 0, what, affects=Affected(transaction=outcome.number, xid=outcome.xid))


def _difference(outcome: Outcome, entry: ArchivedOutcome) -> str:
    """Return how the checkpoint differs from the archive; empty if it does not."""
    for name in _SAME:
        mine, others = getattr(outcome, name), getattr(entry, name)
        if mine != others:
            return f"with {name} {mine!r}, the outcome archive with {others!r}"
    placed = sorted((each.partition, each.base_offset, each.count) for each in outcome.placements)
    parts = (each for each in entry.parts if each.base_offset != NEVER_PLACED)
    archived = sorted((each.number, each.base_offset, each.count) for each in parts)
    return f"placed {placed}, the outcome archive {archived}" if placed != archived else ""
