"""The check of the logs against the journal: each decided message is in its log once, at its place, and no other is.

Records are followed in order, as a start would. Per partition, the messages that they place must be dense: each run
begins where the one before ended. So every message in a log between the first and the last run that the journal still
holds has been decided by exactly one record, and its bytes are compared with that record's. No message of a rolled back
or undecided transaction fits in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from journal.check.archive_check import ArchiveCheck, Ended, by_record
from journal.check.checkpoint_rows_check import FoldCheck
from journal.check.effects import Add, AppendTimes, Effect, frames_of_add
from journal.check.outcome_check import OutcomeCheck
from journal.check.tally import Tally
from journal.check.transaction_history import Followed
from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER, HEADER_BYTES, LOST, stamp, unstamped, walk
from journal.interfaces import IFilesystem
from journal.records.record import (
    Due,
    Messages,
    Published,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    sends,
)
from journal.transaction_states import Cause, State, TransactionNumber
from journal.transactions.table import live_rows
from journal.vfs.file_window import read_some
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.walks.frame_walk import messages_of
from journal.walks.log_reader import LogReader, OpenLogs, difference

MOST_DAMAGED = 64
"""Damaged messages of one partition after which the search goes on; each costs a search for the next one."""


class CrossCheck:
    """Follows records in order. The logs are read as far as the ``newest`` checkpoint knows them.

    Transactions that were undecided at the ``oldest`` one are known; earlier ones may have adds that the journal no
    longer holds. Without ``logs`` records are only compared with each other. The ``checkpoints`` tell the clocks of
    their starts.
    """

    def __init__(
        self,
        filesystem: IFilesystem,
        oldest: Checkpoint | None,
        newest: Checkpoint | None,
        tally: Tally,
        logs: bool = True,
        checkpoints: Sequence[Checkpoint] = (),
    ) -> None:
        stores = newest.stores if newest is not None else []
        rows = live_rows(oldest) if oldest is not None else []
        self._filesystem = filesystem
        self._files = OpenLogs(filesystem)
        self._logs = {store.number: LogReader(self._files, store) for store in stores if logs}
        self._names = {store.number: (store.topic, store.index) for store in stores}
        self._topics: dict[str, list[int]] = {}
        """The partitions that records have made."""
        self._kept: dict[str, list[int]] = {}
        """The partitions of the newest checkpoint."""
        for store in stores:
            self._kept.setdefault(store.topic, []).append(store.number)
        self._times = AppendTimes()
        for checkpoint in checkpoints:
            self._times.know(checkpoint)
        self._next: dict[int, int] = {}
        self._rows = {row.number: row for row in rows}
        self._known_from = oldest.header.lsn if oldest is not None else 0
        self._checkpoint_lsn = newest.header.lsn if newest is not None else 0
        self._ended: set[TransactionNumber] = set()
        self._at = 0
        self._known_session = 0
        """Sessions from this number on began after all missing records: their transactions are seen whole."""
        self._tally = tally
        self._broken: set[int] = set()
        self._damaged: dict[int, int] = {}
        self.live: dict[TransactionNumber, Followed] = {}
        self.archive = ArchiveCheck(oldest)
        self._folds = FoldCheck(oldest, newest)
        self._outcomes = OutcomeCheck(filesystem, newest) if newest is not None else None

    def follow(self, entry: JournalEntry, effect: Effect) -> Iterator[Finding]:
        """Follow the next record; yield what is wrong with it, or with the messages that it placed."""
        known = None
        self._times.follow(entry)
        if effect.number is not None:
            known = self.live.get(effect.number) or self._begun(effect.number, entry.lsn, effect.begins)
            self.live[effect.number] = known
            yield from self._brought(entry, effect.number, effect, known)
        yield from self.archive.follow(entry, lambda: self._ending(entry, effect, known))
        yield from self._folds.follow(entry, effect)
        if self._outcomes is not None:
            yield from self._outcomes.follow(entry)
        yield from self._timed(entry)
        if effect.number is not None and known is not None:
            yield from self._decided(entry, effect.number, effect, known)
        match entry.record:
            case Messages() | Due() | Published() as record:
                yield from self._sent(entry, record)
            case Started():
                self.live = {number: each for number, each in self.live.items() if each.prepared}
                if entry.lsn > self._known_from:
                    self._rows = {
                        n: row
                        for n, row in self._rows.items()
                        if row.state is State.PREPARED or n in self.live
                    }
            case TopicCreated() | TopicAltered() as made if made.added is not None:
                self._topics.setdefault(made.topic, []).extend(made.added.numbers)
                self._names.update(
                    (number, (made.topic, index))
                    for index, number in enumerate(made.added.numbers, made.added.first_index)
                )
            case TopicDeleted() as gone:
                self._deleted(gone.topic, entry.lsn)

    def _timed(self, entry: JournalEntry) -> Iterator[Finding]:
        """Check that journal time only grows, over starts too."""
        at = getattr(entry.record, "at", self._at)
        if at < self._at:
            lsns = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn)
            what = f"{type(entry.record).__name__} at LSN {entry.lsn} is of {at}, a record before it of {self._at}"
            yield Finding(entry.path, entry.position, what, affects=lsns)
        self._at = max(at, self._at)

    def begins_amid(self) -> None:
        """Note that neither the first record of all exists nor a checkpoint that knows the earlier ones."""
        self._folds.interrupted()

    def interrupted(self, start: int, missing_below: int | None = None) -> None:
        """Note that records are missing here, of starts up to this one: later statements begin anew.

        If all of them are below an LSN, and the oldest checkpoint has their result, the rest continues.
        """
        self._next.clear()
        self._broken.clear()
        if missing_below is not None and missing_below <= self._known_from + 1:
            self.live.clear()
            return
        self.archive.interrupted()
        self._folds.interrupted()
        self._known_session = (start + 1) << 32
        for each in self.live.values():
            each.whole = False

    def ended(self) -> Iterator[Finding]:
        """Yield messages that the logs hold beyond all records; call it after the last one."""
        for number, end in self._next.items():
            log = self._logs.get(number)
            if log is not None and log.state.flushed_offset > end:
                path = filenames.partition_directory(log.state.topic, log.state.index, number)
                affects = self._affects(number, end, log.state.flushed_offset - 1)
                yield Finding(
                    path,
                    0,
                    f"no record of the journal decides what the log holds from {end} on",
                    affects=affects,
                )
        self._files.close()
        yield from self._folds.ended()
        if self._outcomes is not None:
            yield from self._outcomes.ended()
        self._tally.archived = self.archive.compared
        undecided = {number for number, each in self.live.items() if each.prepared}
        self._tally.undecided = len(undecided | (self._rows.keys() - self._ended))

    def _deleted(self, topic: str, lsn: int) -> None:
        kept = self._kept.pop(topic, ()) if lsn > self._checkpoint_lsn else ()
        for number in {*self._topics.pop(topic, ()), *kept}:
            self._next.pop(number, None)
            self._logs.pop(number, None)

    def _end(self, number: TransactionNumber) -> None:
        self.live.pop(number, None)
        if number in self._rows:
            self._ended.add(number)

    # -- transactions ------------------------------------------------------------------------------

    def _brought(
        self, entry: JournalEntry, number: TransactionNumber, effect: Effect, known: Followed
    ) -> Iterator[Finding]:
        """Check what a record says was added to its transaction before, and add its own contents."""
        known.xid = known.xid or effect.xid
        said = effect.totals
        if said is not None and known.whole and number not in self._rows and known.totals != said:
            yield self._wrong(entry, f"it says {said}, the journal has {known.totals}", number, known)
        known.requests += effect.requests
        if effect.problem:
            yield self._wrong(entry, effect.problem, number, known)
        known.begin_record()
        for add in effect.adds:
            frames = frames_of_add(entry, add)
            sent: memoryview | bytes = frames
            try:
                if messages_of(frames, add.base, self._stamped(entry, add)) != add.count:
                    raise InvalidFrame(f"it says {add.count} messages for {add.partition}, it holds others")
                sent = frames if add.base is None else unstamped(frames)
            except InvalidFrame as error:
                yield self._wrong(entry, str(error), number, known)
                known.take(add, sent)
                continue
            known.take(add, sent)
            if add.checksum not in (None, known.checksums[add.partition]) and known.whole and known.is_summed:
                what = f"it says another checksum for {add.partition} than its frames have"
                yield self._wrong(entry, what, number, known)

    def _decided(
        self, entry: JournalEntry, number: TransactionNumber, effect: Effect, known: Followed
    ) -> Iterator[Finding]:
        """Check what a record says of the transaction, with all its own contents added."""
        known.prepared = known.prepared or effect.prepares
        if effect.decision is None:
            return
        self._end(number)
        if effect.outcome is State.COMMITTED:
            yield from self._committed(entry, effect, number, known)
        else:
            self._tally.rolled_back += 1

    def _begun(self, number: TransactionNumber, lsn: int, begins: bool) -> Followed:
        """Return a transaction met for the first time: begun here, known from the checkpoint, or older than both."""
        row = self._rows.get(number)
        if row is None:
            is_new = lsn > self._known_from and number.session >= self._known_session
            return Followed(whole=begins or is_new)
        path = filenames.staged_file(number.session, number.serial)
        in_file = [each for each in row.entries[: row.file_entries] if each.lsn < lsn]
        return Followed(
            [Add.staged(each, path) for each in in_file],
            is_summed=not in_file,
            whole=all(e.lsn >= lsn for e in row.entries[row.file_entries :]),
            prepared=row.state is State.PREPARED,
            xid=row.xid,
        )

    def _committed(
        self, entry: JournalEntry, effect: Effect, number: TransactionNumber, known: Followed
    ) -> Iterator[Finding]:
        counts = {placement.partition: placement.count for placement in effect.placements}
        comparable = known.counts() == counts
        if not comparable and known.whole:
            what = f"it places {counts} messages by partition, what was sent in it is {known.counts()}"
            yield self._wrong(entry, what, number, known)
        if effect.checksum not in (None, known.checksum) and known.whole and known.is_summed:
            what = f"it says checksum {effect.checksum:08x}, what was sent has {known.checksum:08x}"
            yield self._wrong(entry, what, number, known)
        self._tally.committed += 1
        self._tally.compared += comparable
        for placement in effect.placements:
            yield from self._place(entry, placement.partition, placement.base_offset, placement.count)
            if comparable:
                yield from self._compare_adds(
                    entry, known, placement.partition, placement.base_offset, number
                )

    def _wrong(
        self, entry: JournalEntry, problem: str, number: TransactionNumber, known: Followed
    ) -> Finding:
        affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn, transaction=number, xid=known.xid)
        return Finding(
            entry.path, entry.position, f"{type(entry.record).__name__}: {problem}", affects=affects
        )

    def _ending(self, entry: JournalEntry, effect: Effect, known: Followed | None) -> Iterator[Ended]:
        """Yield the outcome that the record makes, as an archive must have it."""
        if known is not None and effect.decision is not None:
            whole = known.whole and effect.number not in self._rows
            totals, parts = (known.totals, known.parts()) if whole else (None, None)
            routed = known.routed(self._names) if whole else None
            yield by_record(entry.lsn, effect, known.xid, totals, parts, routed)
        elif isinstance(entry.record, Started):
            rows = {n: row for n, row in self._rows.items() if n not in self._ended}
            active = {n for n, row in rows.items() if row.state is not State.PREPARED}
            active |= {n for n, each in self.live.items() if not each.prepared}
            for n in sorted(active - {n for n, each in self.live.items() if each.prepared}):
                yield Ended(entry.lsn, n, State.ROLLED_BACK, Cause.RESTART, entry.record.at)

    # -- places ------------------------------------------------------------------------------------

    def _sent(self, entry: JournalEntry, record: Messages | Due | Published) -> Iterator[Finding]:
        name, are_stamped = type(record).__name__, not isinstance(record, Published)
        appended = self._times.of(entry)
        try:
            found = sends(record, entry.data)
        except InvalidFrame as error:
            affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn)
            yield Finding(entry.path, entry.position, f"{name} at LSN {entry.lsn}: {error}", affects=affects)
            return
        for sent, frames in found:
            first, last = sent.base_offset, sent.base_offset + sent.count - 1
            try:
                held = messages_of(frames, first, appended) if are_stamped else messages_of(frames, None)
                if held != sent.count:
                    raise InvalidFrame(f"it says {sent.count} messages, it holds others")
            except InvalidFrame as error:
                affects = self._affects(sent.partition, first, last)
                yield Finding(
                    entry.path, entry.position, f"{name} at LSN {entry.lsn}: {error}", affects=affects
                )
                continue
            yield from self._place(entry, sent.partition, first, sent.count)
            placed = frames if are_stamped else self._as_placed(sent.partition, first, frames, appended)
            yield from self._compare(entry, sent.partition, first, placed, None)

    def _place(self, entry: JournalEntry, partition: int, base: int, count: int) -> Iterator[Finding]:
        expected = self._next.get(partition, base)
        self._next[partition] = base + count
        if base != expected:
            what = f"LSN {entry.lsn} places messages from offset {base} on, the record before it ended at {expected}"
            affects = self._affects(partition, min(base, expected), max(base, expected) - 1)
            yield Finding(entry.path, entry.position, what, affects=affects)

    def _compare_adds(
        self, entry: JournalEntry, known: Followed, partition: int, base: int, number: TransactionNumber
    ) -> Iterator[Finding]:
        for add in known.adds:
            if partition not in add.targets:
                continue
            if not self._filesystem.exists(add.path):
                return  # a missing staged file, which is reported by itself
            try:
                data = read_some(self._filesystem, add.path, add.position, add.size)
                sound = messages_of(data, add.base, self._stamped(entry, add)) == add.count
            except (InvalidFrame, OSError):
                sound = False
            if not sound:
                return  # reported at its place: at its record, or at the staged file
            placed = self._as_placed(partition, base, data, self._times.of(entry))
            yield from self._compare(entry, partition, base, placed, number)
            base += add.count

    def _as_placed(
        self, partition: int, base: int, frames: bytes | memoryview, appended: int | None
    ) -> memoryview:
        """Return sound frames as a log must have them from offset ``base`` on."""
        data = memoryview(bytearray(frames))
        if appended is None:
            appended = self._found_time(partition, base, base + messages_in(data))
        stamp(data, base, appended)
        return data

    def _stamped(self, entry: JournalEntry, add: Add) -> int | None:
        """Return the append time that the frames of an add have where they lie: 0 if they are as they were sent."""
        return 0 if add.base is None else self._times.of(entry)

    def _found_time(self, partition: int, base: int, end: int) -> int:
        """Return the append time that the log has of messages of a record whose start's clock is not known."""
        log = self._logs.get(partition)
        if log is None:
            return 0
        while base < end and log.is_in_gap(base):
            base = log.behind_gap
        head = log.read(base, HEADER_BYTES) if base < end else None
        return int(HEADER.unpack(head)[3]) if head is not None and len(head) == HEADER_BYTES else 0

    def _compare(
        self,
        entry: JournalEntry,
        partition: int,
        base: int,
        expected: bytes | memoryview,
        number: TransactionNumber | None,
    ) -> Iterator[Finding]:
        """Check whether the log has these stamped frames at ``base``, as far as it goes."""
        log = self._logs.get(partition)
        if (
            log is None
            or partition in self._broken
            or not log.first_offset <= base < log.state.flushed_offset
        ):
            return
        count = messages_in(expected)
        self._tally.placed += count
        if not log.is_compacted(base):
            yield from self._compare_run(entry, log, base, expected, count, number)
            return
        for position, length, offset, messages in walk(expected):
            if partition in self._broken or log.is_in_last_gap(offset):
                continue
            frame = bytes(memoryview(expected)[position : position + length])
            if log.read(offset, length) == frame:  # before gaps are looked for, which reads the index
                log.advance(offset + messages, length)
            elif not log.is_in_gap(offset):
                yield from self._compare_run(entry, log, offset, frame, messages, number)

    def _compare_run(
        self,
        entry: JournalEntry,
        log: LogReader,
        base: int,
        expected: bytes | memoryview,
        count: int,
        number: TransactionNumber | None,
    ) -> Iterator[Finding]:
        partition = log.state.number
        found = log.read(base, len(expected))
        if found == expected:
            log.advance(base + count, len(expected))
            return
        same, at = difference(expected, found or b"")
        damaged = found is not None and not is_lost(found[at:]) and log.is_damaged(base + same, at)
        if damaged and self._damaged.get(partition, 0) < MOST_DAMAGED:
            self._damaged[partition] = self._damaged.get(partition, 0) + 1
            log.lose_place()  # the segment's check reports it; the next messages are found by their offset
            return
        self._broken.add(partition)
        if found is None or damaged or is_lost(found[at:]):
            return
        path, position = log.place
        affects = self._affects(partition, base + same, base + count - 1, number)
        yield Finding(
            path,
            position + at,
            f"the log does not hold what LSN {entry.lsn} ({type(entry.record).__name__}) put at offset {base + same}",
            affects=affects,
            foreign=True,
        )

    def _affects(
        self, partition: int, first: int, last: int, number: TransactionNumber | None = None
    ) -> Affected:
        topic, index = self._names.get(partition, (f"partition number {partition}", 0))
        return Affected(topic, index, first, last, transaction=number)


def messages_in(run: bytes | memoryview) -> int:
    """Return how many messages a sound, stamped run holds."""
    return difference(run, bytes(run))[0]


def is_lost(frame: bytes) -> bool:
    """Return whether a repair has found none of the messages of a frame."""
    return len(frame) >= HEADER_BYTES and bool(HEADER.unpack_from(frame)[6] & LOST)
