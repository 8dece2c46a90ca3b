"""The engine room: an engine over small files in memory that can be cut, killed and started again, for tests of
crashes.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from journal.constants import KIB, MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import MemoryExhausted
from journal.folds.groups import GroupsFold
from journal.formats import frame
from journal.formats.filenames import parse_checkpoint_file, parse_journal_file
from journal.log.message_store import MessageStore
from journal.records.record import TopicCreated
from journal.recovery.start import recover
from journal.settings import MAX_INTERVAL, TopicSettings
from journal.testing import (
    Fault,
    FaultFilesystem,
    FaultPlan,
    ManualClock,
    MemoryFilesystem,
    Operation,
    cut_power_at,
)
from journal.transaction_states import Cause, State, Totals, TransactionNumber
from journal.transactions.unsent import NOTHING, Unsent
from journal.xid import Xid

NEVER = 1 << 50
SMALL = JournalSettings(
    pool_bytes=MIB,
    file_bytes=64 * KIB,
    checkpoint_bytes=1 << 40,
    checkpoint_interval=NEVER,
    low_water_bytes=0,
    open_files=8,
    outcome_archive=False,
)
"""Checkpoints only when asked for; files that roll after a few messages; half a MiB for staged frames; and only such
records and partitions as a test makes: those of the archive turn it on."""


def run_of(*values: bytes) -> bytes:
    return b"".join(frame.encode(value, 1) for value in values)


def xid_of(name: str) -> Xid:
    return Xid(1, name.encode(), b"")


class Room:
    """One start of an engine in a directory. ``inner`` is the disk, ``plan`` the faults."""

    has_groups = False

    def __init__(
        self,
        inner: MemoryFilesystem | None = None,
        settings: JournalSettings = SMALL,
        cut_at: int = 0,
        clock: ManualClock | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.inner = inner if inner is not None else MemoryFilesystem()
        self.settings = settings
        self.written: list[str] = []
        """The paths that the start wrote to."""
        self._cut = cut_power_at(cut_at) if cut_at else None
        self.plan = FaultPlan(faults, on_operation=self._on_operation)
        self.filesystem = FaultFilesystem(self.inner, self.plan)
        self.clock = clock or ManualClock(monotonic=1_000_000)
        self._serial = 0
        self.groups = GroupsFold()
        folds = [self.groups] if self.has_groups else []
        self.engine: Engine = recover(self.filesystem, self.clock, settings, folds)
        self.plan.on_operation = None

    def _on_operation(self, kind: Operation, path: str) -> None:
        if kind is Operation.WRITE:
            self.written.append(path)
        if self._cut is not None:
            self._cut(kind, path)

    # -- work -------------------------------------------------------------------------------------

    def topic(self, name: str = "t", partitions: int = 2, **settings: int) -> list[MessageStore]:
        stores = self.topic_unforced(name, partitions, **settings)
        self.engine.sync()
        return stores

    def topic_unforced(self, name: str, partitions: int, **settings: int) -> list[MessageStore]:
        catalog = self.engine.catalog
        made = TopicSettings(**{"force_messages": 10**9, "force_interval": MAX_INTERVAL, **settings})
        self.engine.accept(TopicCreated(name, catalog.next_partition, partitions, made, self.engine.now()))
        return catalog.topics[name].partitions

    def store(self, number: int = 1) -> MessageStore:
        return self.engine.catalog.stores[number]

    def accept(self, *values: bytes, number: int = 1) -> int:
        try:
            return self.engine.append(self.store(number), run_of(*values), len(values))
        except MemoryExhausted:
            self.engine.sync()
            self.flush()
            return self.engine.append(self.store(number), run_of(*values), len(values))

    def send(self, *values: bytes, number: int = 1) -> int:
        base = self.accept(*values, number=number)
        self.engine.sync()
        return base

    def begin(self, *adds: tuple[int, bytes], session: int = 7) -> Begun:
        self._serial += 1
        return Begun(self, TransactionNumber(self.engine.start_number << 32 | session, self._serial)).add(
            *adds
        )

    def checkpoint(self) -> None:
        self.engine.housekeeping.checkpoint_inline()

    def flush(self) -> None:
        self.engine.want_flush()
        self.engine.housekeeping.run_inline()

    # -- what is there -----------------------------------------------------------------------------

    def values(self, number: int = 1, from_offset: int | None = None) -> list[bytes]:
        """Return everything that a reader can see, or from an offset on, with the offsets checked."""
        store = self.store(number)
        found: list[bytes] = []
        offset = store.start_offset if from_offset is None else from_offset
        while data := store.read(offset, 256 * KIB):
            for message in frame.decode_run(data, offset):
                assert message.offset == offset
                found.append(message.value or b"")
                offset += 1
        assert offset == store.high_watermark
        return found

    def prepared(self) -> set[Xid | None]:
        return {t.xid for t in self.engine.transactions.live.values() if t.state is State.PREPARED}

    def journals(self) -> list[int]:
        names = self.inner.list_directory("journal")
        return [lsn for name in names if (lsn := parse_journal_file(name)) is not None]

    def checkpoints(self) -> list[int]:
        names = self.inner.list_directory("checkpoints")
        return [lsn for name in names if (lsn := parse_checkpoint_file(name)) is not None]

    # -- how it ends --------------------------------------------------------------------------------

    def crashed(self, seed: int = 0, survive: float | None = None) -> Room:
        """Return the next start after a power cut."""
        return type(self)(self.inner.crash_clone(seed, survive), self.settings)

    def killed(self) -> Room:
        """Return the next start after SIGKILL: everything that was written can be read, durable or not."""
        return type(self)(self.inner.kill_clone(), self.settings)

    def stopped(self) -> Room:
        """Return the next start on the very same disk."""
        self.engine.close()
        return type(self)(self.inner, self.settings)


class GroupRoom(Room):
    """A room whose engine folds consumer groups, too."""

    has_groups = True


class Begun:
    """A transaction, and the counts of its client."""

    def __init__(self, room: Room, number: TransactionNumber) -> None:
        self.room = room
        self.number = number
        self.totals = Totals(0, 0, 0)
        self.unsent = NOTHING

    def carry(self, *runs: tuple[int, bytes]) -> Begun:
        """Keep these messages for the request that decides."""
        self.unsent = Unsent([*self.unsent.runs, *((number, 1, run_of(value), ()) for number, value in runs)])
        return self

    def add(self, *adds: tuple[int, bytes]) -> Begun:
        for partition, value in adds:
            self.add_frames(partition, run_of(value))
        return self

    def add_frames(self, partition: int, frames: bytes) -> Begun:
        """Add one message that is a frame already."""
        self.room.engine.transactions.add(self.number, partition, frames, 1)
        sent = self.totals
        self.totals = Totals(sent.messages + 1, sent.requests + 1, crc32c(frames, sent.checksum))
        return self

    def prepare(self, name: str) -> Begun:
        self.room.engine.transactions.prepare(self.number, xid_of(name), self.totals, unsent=self.unsent)
        return self

    def commit(self) -> Begun:
        self.room.engine.transactions.commit(self.number, Cause.CLIENT, self.totals, unsent=self.unsent)
        return self

    def rollback(self) -> Begun:
        self.room.engine.transactions.rollback(self.number, Cause.CLIENT)
        return self

    def sync(self) -> Begun:
        self.room.engine.sync()
        return self


def decide(room: Room, name: str, commit: bool) -> None:
    """End a prepared transaction by its xid, from another session."""
    transactions = room.engine.transactions
    number = transactions.find(xid_of(name))
    if commit:
        transactions.commit(number, Cause.CLIENT)
    else:
        transactions.rollback(number, Cause.CLIENT)
    room.engine.sync()


def journal_path(lsn: int) -> str:
    return f"journal/{lsn:032}.journal"


def checkpoint_path(lsn: int) -> str:
    return f"checkpoints/{lsn:032}.checkpoint"


def contents(inner: MemoryFilesystem, directory: str = "") -> dict[str, bytes]:
    """Return every file of a directory with its bytes."""
    found: dict[str, bytes] = {}
    for name in inner.list_directory(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found |= contents(inner, path)
        except NotADirectoryError:
            file = inner.open(path)
            found[path] = file.read(0, file.size())
    return found


def damage(inner: MemoryFilesystem, path: str, position: int, data: bytes | None = None) -> None:
    """Invert a byte (or put ``data`` there), durably, as no crash does."""
    file = inner.open(path)
    old = file.read(position, 1)
    file.write_some(position, [data if data is not None else bytes([old[0] ^ 0xFF])])
    file.force()
