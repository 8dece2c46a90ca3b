"""A damaged store is a small data directory with one of everything, its expected content, and a strict judge.

:func:`built` makes it: topics with several partitions and segments, two producers, groups, transactions that ended in
every way, two that are prepared (one with its frames in a staged file), a deleted topic, moved log starts, two
checkpoints, three starts, spare and recycled journal files, and work above the newest checkpoint. It was killed, long
after its last force. :func:`judged` starts a copy of it that was damaged and says how that went.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from journal.constants import KIB, MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import CorruptData, CorruptSegment
from journal.folds.table import client_folds
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.records.group_entries import PartitionOffset
from journal.records.record import (
    LogStartMoved,
    OffsetsCommitted,
    PartitionsClaimed,
    ProducerOpened,
    TopicCreated,
    TopicDeleted,
)
from journal.recovery.start import recover
from journal.settings import MAX_INTERVAL, TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, State, TransactionNumber
from journal.transactions.state import TransactionRow
from tests.support.engine_room import NEVER, Begun, run_of

SETTINGS = JournalSettings(
    pool_bytes=16 * MIB,
    file_bytes=32 * KIB,
    checkpoint_bytes=1 << 40,
    checkpoint_interval=NEVER,
    low_water_bytes=0,
    open_files=64,
)
SECOND = 1_000_000
TIMES = range(0, 60 * SECOND, 3 * SECOND)
BIG = bytes(range(256)) * 68
"""A payload of 17 KiB: two of them in a segment make an entry in each index."""


class DamagedStore:
    """An engine over ``inner`` with all the broker's folds. It has the names of :class:`Begun`'s room."""

    def __init__(self, inner: MemoryFilesystem, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self.inner = inner
        self._random = random
        self.clock = ManualClock(monotonic=SECOND)
        self._serial = 0
        self.appended: dict[int, list[tuple[int, int]]] = {}
        """(end offset, journal time) of each partition after each request, for exact expectations."""
        self.engine: Engine = recover(inner, self.clock, SETTINGS, folds=client_folds(), random=random)

    def topic(self, name: str, partitions: int, segment_bytes: int = MIB) -> list[MessageStore]:
        """Create a topic whose segments may be smaller than any that a client can ask for."""
        catalog = self.engine.catalog
        settings = TopicSettings(
            force_messages=10**9, force_interval=MAX_INTERVAL, segment_bytes=segment_bytes
        )
        self.accept(TopicCreated(name, catalog.next_partition, partitions, settings, self.engine.now()))
        return catalog.topics[name].partitions

    def accept(self, decision: Any) -> None:
        self.engine.accept(decision)
        self.settle()

    def settle(self) -> None:
        """Force everything, and let time pass, as between a broker's requests."""
        self.engine.sync()
        for number, log in self.engine.catalog.stores.items():
            self.appended.setdefault(number, []).append((log.end_offset, self.engine.now()))
        self.clock.advance(SECOND)
        self.engine.housekeeping.run_inline()

    def send(self, number: int, *values: bytes, **producer: int) -> None:
        self.engine.append(self.engine.catalog.stores[number], run_of(*values), len(values), **producer)
        self.settle()

    def begin(self, *adds: tuple[int, bytes]) -> Begun:
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 7, self._serial)
        return Begun(self, number).add(*adds)  # type: ignore[arg-type]

    def checkpoint(self) -> None:
        self.settle()
        self.engine.housekeeping.request_checkpoint()  # type: ignore[attr-defined]
        self.engine.housekeeping.run_inline()

    def disk(self) -> MemoryFilesystem:
        """Return a copy of everything that it wrote, all of it durable."""
        return self.inner.crash_clone(0, survive=1.0)

    def first_since(self, number: int, time: int) -> int:
        """Return the offset of the first message of a partition that was appended at that time or later."""
        before = [end for end, at in self.appended[number] if at < time]
        return max(before, default=0)

    def idle(self) -> None:
        """Let time pass without work: the journal is marked."""
        self.clock.advance(SECOND)
        self.engine.housekeeping.mark_if_idle(self.engine.now())
        self.settle()

    def restarted(self) -> DamagedStore:
        after = DamagedStore(self.inner.kill_clone(), self._random)
        after.appended = self.appended
        return after


def built() -> DamagedStore:
    """Build such a store; its broker was killed while idle. :meth:`DamagedStore.disk` is what it left."""
    store = DamagedStore(MemoryFilesystem())
    store.topic("a", 2)  # 1, 2
    store.topic("b", 1, segment_bytes=175)  # 3
    store.topic("gone", 1)  # 4
    store.send(4, b"never seen again")
    store.topic("twins", 2)  # 5, 6
    store.send(5, b"castor")
    store.send(6, b"pollux")
    store.accept(ProducerOpened(1, 1, "p", store.engine.now(), bytes(16)))
    store.send(1, b"first", producer_id=1, epoch=1, sequence=0)
    store.send(2, b"frist", producer_id=1, epoch=1, sequence=0)
    for number in range(6):
        store.send(3, b"rolls %d" % number)
    store.begin((1, b"stage one"), (2, b"stage two")).prepare("old")
    store.begin((1, b"other one"), (2, b"other two")).prepare("odd")
    store.settle()
    store.begin((1, b"both"), (3, b"of them")).commit()
    store.settle()
    store.accept(PartitionsClaimed("g", "m", [(1, 1)], store.engine.now()))
    store.accept(OffsetsCommitted("g", [PartitionOffset(1, 1, 1, "note")], store.engine.now()))
    store.checkpoint()
    store.send(2, BIG)
    store.send(2, BIG)
    store.send(2, BIG)
    store.accept(TopicDeleted("gone", store.engine.now()))
    store.begin((1, b"not")).rollback()
    store.checkpoint()
    store = store.restarted()
    store.send(1, b"second start")
    store.accept(LogStartMoved(3, 2, store.engine.now()))
    store.checkpoint()
    store.send(1, b"after", b"the newest checkpoint")
    store.begin((1, b"late"), (2, b"later")).prepare("new")
    store.settle()
    store.idle()
    store = store.restarted()
    store.send(3, b"third start")
    store.begin((1, b"x"), (2, b"y")).commit()
    store.settle()
    store.accept(OffsetsCommitted("g", [PartitionOffset(2, 3, 0)], store.engine.now()))
    store.idle()
    return store


# -- what it gives --------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """Everything that a start gives: the folds' rows, each partition's messages, what the prepared transactions
    bring.
    """

    rows: dict[str, bytes] = field(default_factory=dict)
    logs: dict[str, Any] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=dict)
    staged: dict[str, Any] = field(default_factory=dict)


@dataclass
class Verdict:
    """How a start of a damaged store went. ``refused`` and ``errors`` are typed errors, ``notes`` what was logged."""

    refused: Exception | None = None
    errors: list[CorruptData] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: Found | None = None

    @property
    def silent(self) -> bool:
        """Return whether no error and no log line reported anything."""
        return self.refused is None and not self.errors and not self.notes


def judged(inner: MemoryFilesystem) -> Verdict:
    """Start on that disk, read everything, end the prepared transactions."""
    verdict = Verdict()
    with _warnings() as warned:
        try:
            store = DamagedStore(inner)
        except Exception as error:  # noqa: BLE001  (whether it is a typed one is judged)
            verdict.refused = error
            return verdict
        verdict.notes += store.engine.report.notes  # type: ignore[attr-defined]
        verdict.found = _look(store, verdict.errors)
    verdict.notes += [record.getMessage() for record in warned]
    return verdict


def _look(store: DamagedStore, errors: list[CorruptData]) -> Found:
    found = Found()
    engine = store.engine
    for fold in engine.folds:
        rows = [_plain(row) for row in fold.snapshot()]
        if fold is engine.starts:
            del rows[-1]  # this start's own, whose nonce is its own, too
        found.rows[fold.name] = msgspec.msgpack.encode(rows)
    for number, partition in engine.catalog.stores.items():
        name = f"{partition.topic}-{partition.index}.{number}"
        _one_by_one(partition, errors)
        found.logs[name] = (partition.start_offset, partition.high_watermark, _messages(partition, errors))
        found.times[name] = [_time(partition, at, errors) for at in TIMES]
    _end_prepared(store, found, errors)
    return found


def _plain(row: Any) -> Any:
    """Return the row without the place of its frames, which depends on the checkpoint that the start used."""
    return msgspec.structs.replace(row, file_entries=0, salt=0) if isinstance(row, TransactionRow) else row


def _one_by_one(partition: MessageStore, errors: list[CorruptData]) -> None:
    """Look up every offset, the last one first: by the index, since nothing has been read from there before."""
    for offset in reversed(range(partition.start_offset, partition.high_watermark)):
        try:
            [message] = frame.decode_run(partition.read(offset, 1), offset)
        except CorruptSegment as error:
            errors.append(error)
        else:
            assert message.offset == offset


def _messages(partition: MessageStore, errors: list[CorruptData]) -> dict[int, bytes | None]:
    """Return offset to value; messages that cannot be read are left out and their errors kept."""
    messages: dict[int, bytes | None] = {}
    offset = partition.start_offset
    while offset < partition.high_watermark:
        try:
            data = partition.read(offset, 256 * KIB)
        except CorruptSegment as error:
            errors.append(error)
            offset = error.last_offset + 1
            continue
        assert data, f"nothing at {offset} below {partition.high_watermark}"
        for message in frame.decode_run(data, offset):
            assert message.offset == offset
            messages[offset] = message.value
            offset += 1
    return messages


def _time(partition: MessageStore, at: int, errors: list[CorruptData]) -> int:
    try:
        return partition.offset_for_time(at)
    except CorruptSegment as error:
        errors.append(error)
        return -1


def _end_prepared(store: DamagedStore, found: Found, errors: list[CorruptData]) -> None:
    """Commit each transaction in doubt: it brings to each partition what was staged, or an error says why not."""
    engine = store.engine
    for transaction in sorted(engine.transactions.live.values(), key=lambda each: each.number):
        assert transaction.state is State.PREPARED
        before = {number: log.end_offset for number, log in engine.catalog.stores.items()}
        name = str(transaction.xid)
        try:
            engine.transactions.commit(transaction.number, Cause.CLIENT)
        except CorruptData as error:
            errors.append(error)
            engine.transactions.rollback(transaction.number, Cause.CLIENT)
            engine.sync()
            continue
        engine.sync()
        found.staged[name] = {
            number: [m.value for m in frame.decode_run(log.read(before[number], MIB), before[number])]
            for number, log in engine.catalog.stores.items()
            if log.end_offset > before[number]
        }


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """Return what is logged by the journal."""
    handler, logger = _Kept(), logging.getLogger("journal")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield handler.records
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


# -- the judgement --------------------------------------------------------------------------------------------------


def wrong(verdict: Verdict, truth: Found, store: DamagedStore) -> str:
    """Return what is wrong with the verdict; empty if nothing. Everything that was returned must be exactly right."""
    if verdict.refused is not None:
        return "" if isinstance(verdict.refused, CorruptData) else f"refused with {verdict.refused!r}"
    found = verdict.found
    assert found is not None
    if found.rows != truth.rows:
        return (
            f"the rows of {[name for name in truth.rows if truth.rows[name] != found.rows.get(name)]} differ"
        )
    if found.logs.keys() != truth.logs.keys():
        return "there are other partitions"
    for name, (start, end, messages) in truth.logs.items():
        if found.logs[name][:2] != (start, end):
            return f"{name} goes from {found.logs[name][:2]}, not {(start, end)}"
        got = found.logs[name][2]
        if any(offset not in messages or messages[offset] != value for offset, value in got.items()):
            return f"{name} gives messages that are not its own"
        if missing := [
            offset for offset in messages if offset not in got and not _told(verdict, name, offset)
        ]:
            return f"{name} leaves out {missing} without an error"
    return _wrong_staged(verdict, found, truth) or _wrong_times(found, store)


def _told(verdict: Verdict, name: str, offset: int) -> bool:
    return any(
        isinstance(error, CorruptSegment)
        and f"/{name}/" in error.path
        and error.first_offset <= offset <= error.last_offset
        for error in verdict.errors
    )


def _wrong_staged(verdict: Verdict, found: Found, truth: Found) -> str:
    for name, brought in found.staged.items():
        if truth.staged.get(name) != brought:
            return f"committing {name} brought {brought}"
    lost = len(truth.staged) - len(found.staged)
    if lost > sum(error.path.startswith("staged/") for error in verdict.errors):
        return f"{lost} prepared transactions could not be committed, without an error"
    return ""


def _wrong_times(found: Found, store: DamagedStore) -> str:
    """Return offsets by time that are wrong: an offset may be early, as far as an index entry covers; never late."""
    for name, offsets in found.times.items():
        number = int(name.rpartition(".")[2])
        for time, offset in zip(TIMES, offsets, strict=True):
            exact = max(store.first_since(number, time), found.logs[name][0])
            if offset > exact:
                return f"{name}: what was appended from {time} µs on begins at {offset}, not {exact}"
    return ""
