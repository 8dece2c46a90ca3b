"""The embedded log: the engine in the thread of a program, without the service. Every call is forced when it returns.

The service can open a directory that was made here. The embedded log can open a directory of the service until the
service has journaled records for which the embedded log has no fold, such as producers and groups. Then the log refuses
the directory, so that none of them are lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from crc32c import crc32c

from journal.arguments import NOTHING_CHANGED, NOTHING_READ, checked_xid, index_of, text, whole, wrong_type
from journal.due_time import After, At, due_time
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull, LogClosed, MemoryExhausted, Misuse, UnknownPartition, reserved
from journal.formats import frame
from journal.formats.envelope import Clock, log_for, seal
from journal.formats.filenames import is_internal
from journal.formats.frame import HEADER, Message
from journal.formats.frame_check import check_run
from journal.interfaces import IClock, IFilesystem
from journal.log.key_tables import look_up
from journal.log.message_store import MessageStore
from journal.log.search import Wanted, examine
from journal.log.segment import Segment
from journal.message_headers import GivenHeaders, GivenId, GivenTags, marked, wanted_of
from journal.random_id import new_id
from journal.records.record import LogStartMoved
from journal.recovery.start import recover
from journal.schedule.cancelling import Found, cancel
from journal.schedule.cancelling import look_up as look_up_scheduled
from journal.schedule.judging import Judge
from journal.schedule.schedule import Schedule
from journal.schedule.steps import carry_out
from journal.scheduled_id import ScheduledId
from journal.settings import TopicChoices, topic_settings
from journal.transaction_states import Cause, State, Totals, TransactionNumber
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid

_READ_BYTES = 1 << 20


def open_log(path: str | os.PathLike[str], settings: JournalSettings | None = None) -> Log:
    """Open the log in a directory and recover its contents; a missing directory is made.

    Raises ``OSError`` if the directory cannot be made or read, :class:`journal.errors.DirectoryLocked` if another
    process has it open, :class:`journal.errors.ForeignDirectory` if it holds files of something else, and a
    :class:`journal.errors.CorruptData` for damaged files, which are left as they are.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise wrong_type("path", path, "the path of a directory, as str or Path", "nothing was opened")
    if settings is not None and not isinstance(settings, JournalSettings):
        raise wrong_type("settings", settings, "JournalSettings or None", "nothing was opened")
    return Log(OSFilesystem(path), SystemClock(), settings)


class Log:
    """An embedded log: topics with partitions, appends and transactions, all forced when a call returns.

    It is not thread-safe. Use it as a context manager, or call :meth:`close`.
    """

    def __init__(
        self, filesystem: IFilesystem, clock: IClock, settings: JournalSettings | None = None
    ) -> None:
        self._engine: Engine | None = recover(filesystem, clock, settings)
        self._schedule = Schedule(self._engine)
        self._judge = Judge(self._schedule)
        self._serial = 0

    @property
    def engine(self) -> Engine:
        """The engine under the log. Raises :class:`journal.errors.LogClosed`, as every method does, once the log is
        closed.
        """
        if self._engine is None:
            raise LogClosed("the log has been closed; nothing was changed. Open the directory again")
        return self._engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write a checkpoint, so that the next start has nothing to replay, and release the directory.

        Closing twice does nothing.
        """
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            if not engine.failed:
                engine.mark()
                engine.housekeeping.checkpoint_inline()
        finally:
            engine.close()

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **settings: Unpack[TopicChoices]) -> None:
        """Create a topic; raises ``TopicExists``, ``InvalidName`` or ``InvalidSetting``.

        The settings are those of :class:`journal.settings.TopicChoices`: durations in seconds, sizes in bytes.
        """
        name, partitions = (
            text("name", name, NOTHING_CHANGED),
            whole("partitions", partitions, NOTHING_CHANGED),
        )
        engine = self.engine
        creation = engine.catalog.judge_creation(
            name, partitions, topic_settings(settings), engine.now(), new_id()
        )
        engine.accept(creation)
        self._settle()

    @property
    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, by name."""
        topics = self.engine.catalog.topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not is_internal(name)}

    def _store(self, topic: str, partition: int) -> MessageStore:
        partitions = self.engine.catalog.topic(text("topic", topic, NOTHING_CHANGED)).partitions
        partition = index_of(partition, NOTHING_CHANGED)
        if not 0 <= partition < len(partitions):
            raise UnknownPartition(
                f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, not {partition}; nothing was changed"
            )
        return partitions[partition]

    def _target(self, topic: str, partition: int) -> MessageStore:
        """Return a partition that messages may be sent to."""
        store = self._store(topic, partition)
        if store.internal:
            raise reserved(store.topic)
        return store

    # -- messages ----------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int = 0,
        id: GivenId = None,
        tags: GivenTags = None,
    ) -> int:
        """Append one message; return its offset, once it is forced to disk. ``id`` True makes a new id, ``tags`` are a
        str or several of them.
        """
        store = self._target(topic, partition)
        frames = _frame_of(value, key, headers, id, tags)
        count = check_run(frames)
        return self._append(store, frames, count)

    def _append(self, store: MessageStore, frames: bytes, count: int) -> int:
        """Append frames, and force them; return the first offset."""
        if self.engine.full:
            raise DiskFull(
                "the disk is nearly full; nothing was appended. Reading, ending transactions and retention still work. "
                "Make room on it, then try again"
            )
        try:
            offset = self.engine.append(store, frames, count)
        except MemoryExhausted:
            self.engine.want_flush()
            self.engine.housekeeping.run_inline()
            offset = self.engine.append(store, frames, count)
        self._settle()
        return offset

    # -- messages for later ------------------------------------------------------------------------

    def schedule(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int = 0,
        id: GivenId = None,
        tags: GivenTags = None,
        *,
        after: After | None = None,
        at: At | None = None,
    ) -> ScheduledId:
        """Append one message later: ``after`` a time has passed, or ``at`` a time of the wall clock; ten years are the
        longest. Returns what it is known by, once it is forced to disk.

        Nothing is appended by itself: :meth:`fire_due` appends what is due.
        """
        run = self._run_for_later(topic, value, key, headers, partition, id, tags, after, at)
        offset = self._append(run.store, run.frames, 1)
        return ScheduledId(run.store.index, offset, HEADER.unpack_from(run.frames)[1])

    def _run_for_later(
        self, topic: str, value: bytes | None, key: bytes | None, headers: GivenHeaders | None, partition: int,
        id: GivenId, tags: GivenTags, after: After | None, at: At | None,
    ) -> _ForLater:  # fmt: skip
        due = due_time(after, at, NOTHING_CHANGED)
        if due is None:
            raise Misuse(
                "a message for later needs after= or at=; nothing was changed. append() takes one for now"
            )
        target, frames = self._target(topic, partition), _frame_of(value, key, headers, id, tags)
        check_run(frames)
        stores, now = self._schedule.make(), self._schedule.now(due.clock)
        when = due.micros + now if due.clock is Clock.ELAPSED else due.micros
        store = stores[log_for(when - now)]
        sealed = seal(frames, target.number, due.clock, max(1, when))
        self._judge.check(store, sealed)
        return _ForLater(store, sealed)

    def fire_due(self) -> int:
        """Append the messages that are due by now, in the order in which they are; return how many."""
        begun, fruitless = self._schedule.placed, 0
        while fruitless < 2:  # where memory was short, settling has made room for more
            before = self._schedule.placed
            carry_out(self._schedule.run())
            self._schedule.retain()
            self._settle()
            if self._schedule.placed > before:
                fruitless = 0
            elif self._schedule.next_in() == 0:
                fruitless += 1
            else:
                break
        return self._schedule.placed - begun

    def cancel(self, id: ScheduledId | str) -> Found:
        """Take a message back that is not due yet; return what has become of it.

        Taken back again it is CANCELLED as the first time, for a day.
        """
        looked_up = carry_out(look_up_scheduled(self._schedule, [ScheduledId.of(id)]))
        [found] = carry_out(cancel(self._schedule, looked_up))
        self._settle()
        return found

    def scheduled(self, id: ScheduledId | str) -> Found:
        """Return what is known of a message for later."""
        [found] = carry_out(look_up_scheduled(self._schedule, [ScheduledId.of(id, NOTHING_READ)]))
        return found

    # -- reading -----------------------------------------------------------------------------------

    def read(self, topic: str, offset: int = 0, partition: int = 0) -> Iterator[Message]:
        """Yield the messages of a partition from ``offset`` to the end as it is when it is reached.

        Raises ``OffsetOutOfRange`` outside the log and ``CorruptSegment`` for damaged bytes.
        """
        store, offset = self._store(topic, partition), whole("offset", offset, NOTHING_READ)
        while data := store.read(offset, _READ_BYTES):
            for messages, _ in frame.decode_pieces(data, offset):
                yield from messages
                offset = messages[-1].offset + 1

    def find(
        self,
        topic: str,
        *,
        key: bytes | None = None,
        id: str | bytes | None = None,
        tag: str | None = None,
        offset: int = 0,
        partition: int = 0,
    ) -> Iterator[Message]:
        """Return the messages of a partition with this key, this id and this tag, of which two may be left out, from
        ``offset`` on, one by one.

        Those below the start of the log are left out. The first search through a full segment leaves a table of keys
        beside it, by which later ones read only what they return. Raises ``CorruptSegment`` at damage, and ``Misuse``
        without any of the three.
        """
        wanted = Wanted(*wanted_of(key, id, tag))
        return self._search(self._store(topic, partition), whole("offset", offset, NOTHING_READ), wanted)

    def _search(self, store: MessageStore, offset: int, wanted: Wanted) -> Iterator[Message]:
        without_table: Segment | None = None
        while (offset := max(offset, store.start_offset)) < store.high_watermark:
            segment = store.sealed_segment(offset)
            if segment is None or segment == without_table:
                found, offset = examine(store.read(offset, _READ_BYTES), offset, wanted)
                yield from found
                continue
            looked = look_up(self.engine.filesystem, segment, offset, wanted, not self.engine.full)
            if looked.made:
                self.engine.housekeeping.keep_table(segment, looked.made)
                self.engine.housekeeping.run_inline()
            if looked.offsets is None:
                without_table = segment
                continue
            for place in looked.offsets:
                if max(offset, store.start_offset) <= place:
                    found, offset = examine(store.read(place, 1), place, wanted)
                    yield from found
            offset = max(offset, looked.end)

    def start_offset(self, topic: str, partition: int = 0) -> int:
        """Return the offset of a partition's first message, or of the next one to come if it has none."""
        return self._store(topic, partition).start_offset

    def trim(self, topic: str, offset: int, partition: int = 0) -> None:
        """Remove the messages of a partition below ``offset`` (its end at most). An offset below its start changes
        nothing.

        Segments that lie wholly below it are unlinked after the next checkpoint.
        """
        store, offset = self._store(topic, partition), whole("offset", offset, NOTHING_CHANGED)
        start = min(offset, store.end_offset)
        if start > store.start_offset:
            self.engine.accept(LogStartMoved(store.number, start, self.engine.now()))
            self._settle()

    # -- transactions --------------------------------------------------------------------------------

    def transaction(self) -> EmbeddedTransaction:
        """Begin a transaction; as a context manager it commits at the end, or rolls back on an exception."""
        self._serial += 1
        return EmbeddedTransaction(self, TransactionNumber(self.engine.start_number << 32, self._serial))

    def prepared(self) -> list[Xid]:
        """Return the xids of the transactions that are prepared and not decided, also of earlier starts."""
        live = self.engine.transactions.live.values()
        return [t.xid for t in live if t.state is State.PREPARED and t.xid is not None]

    def commit(self, xid: Xid) -> None:
        """Commit a prepared transaction; raises ``UnknownTransaction``, or ``TransactionRolledBack``."""
        transactions = self.engine.transactions
        transactions.commit(transactions.find(checked_xid(xid)), Cause.CLIENT)
        self._settle()

    def rollback(self, xid: Xid) -> None:
        """Roll a prepared transaction back; raises ``UnknownTransaction``, or ``TransactionCommitted``."""
        transactions = self.engine.transactions
        transactions.rollback(transactions.find(checked_xid(xid)), Cause.CLIENT)
        self._settle()

    def _settle(self) -> None:
        self.engine.sync()
        self.engine.transactions.trim(self.engine.start_number << 32)
        self.engine.sync()
        self.engine.housekeeping.run_inline()


class EmbeddedTransaction:
    """A transaction: its messages, for any partitions, become visible together or not at all."""

    def __init__(self, log: Log, number: TransactionNumber) -> None:
        self._log = log
        self._number = number
        self._totals = Totals(0, 0, 0)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int = 0,
        id: GivenId = None,
        tags: GivenTags = None,
    ) -> None:
        """Add one message. It gets its offset at commit. ``id`` True makes a new id, ``tags`` are a str or several of
        them.
        """
        store = self._log._target(topic, partition)
        frames = _frame_of(value, key, headers, id, tags)
        self._log.engine.transactions.add(self._number, store.number, frames, check_run(frames))
        sent = self._totals
        self._totals = Totals(sent.messages + 1, sent.requests + 1, crc32c(frames, sent.checksum))

    def schedule(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int = 0,
        id: GivenId = None,
        tags: GivenTags = None,
        *,
        after: After | None = None,
        at: At | None = None,
    ) -> None:
        """Add one message for later; see :meth:`journal.Log.schedule`. The time is counted from this call."""
        log = self._log
        run = log._run_for_later(topic, value, key, headers, partition, id, tags, after, at)
        log.engine.transactions.add(self._number, run.store.number, run.frames, 1)
        sent = self._totals
        self._totals = Totals(sent.messages + 1, sent.requests + 1, crc32c(run.frames, sent.checksum))

    def prepare(self, xid: Xid) -> None:
        """Prepare; end the transaction later with :meth:`journal.Log.commit` or :meth:`journal.Log.rollback`.

        After this call the transaction survives a crash.
        """
        self._log.engine.transactions.prepare(self._number, checked_xid(xid), self._totals)
        self._log._settle()

    def commit(self) -> None:
        """Commit in one phase; the messages are forced and visible when this returns."""
        self._log.engine.transactions.commit(self._number, Cause.CLIENT, self._totals)
        self._log._settle()

    def rollback(self) -> None:
        """Roll back: drop everything that was added."""
        self._log.engine.transactions.rollback(self._number, Cause.CLIENT)
        self._log._settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        live = self._log.engine.transactions.live.get(self._number)
        if live is not None and live.state is State.PREPARED:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()


class _ForLater(NamedTuple):
    """An envelope, and the log of the schedule that it is for."""

    store: MessageStore
    frames: bytes


def _frame_of(
    value: bytes | None, key: bytes | None, headers: GivenHeaders | None, id: GivenId, tags: GivenTags
) -> bytes:
    given, _ = marked(headers, id, tags, NOTHING_CHANGED)
    return frame.encode(value, time.time_ns() // 1000, key, given)
