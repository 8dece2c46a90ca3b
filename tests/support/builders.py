"""Builders that several tests use: frames, and an engine over a memory file system."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from crc32c import crc32c
from zope.interface import implementer

from journal.constants import MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.folds.groups import GroupsFold
from journal.formats import frame
from journal.formats.checkpoint_rows import RowReader
from journal.formats.frame_check import check_run
from journal.interfaces import IFold
from journal.random_id import new_id
from journal.records.record import AnyRecord, Mark, Started
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Totals, TransactionNumber
from journal.xid import Xid

SESSION = 1 << 32
OTHER_SESSION = SESSION + 1


def frames(*values: bytes | None) -> bytes:
    return b"".join(frame.encode(value, 1) for value in values)


def small_files(**settings: Any) -> JournalSettings:
    """Settings of a journal whose files have 1 MiB: each start lays out one of them or three, with zeros.

    With the 64 MiB of a broker this takes 25 ms of processor in memory and 60 ms in files, more than most tests do.
    """
    return JournalSettings(**{"file_bytes": MIB, "low_water_bytes": 0} | settings)


def number(serial: int, session: int = SESSION) -> TransactionNumber:
    return TransactionNumber(session, serial)


def xid(name: str, branch: str = "b") -> Xid:
    return Xid(1, name.encode(), branch.encode())


def totals(*parts: bytes, offsets: int = 0) -> Totals:
    """Return the totals of a client that sent these runs of frames, and that many requests of offsets."""
    checksum = messages = 0
    for part in parts:
        checksum = crc32c(part, checksum)
        messages += check_run(part)
    return Totals(messages, len(parts) + offsets, checksum)


def reread(fold: Any, rows: Iterable[Any]) -> list[Any]:
    """Return rows as a start reads them from a checkpoint."""
    reader = RowReader([msgspec.msgpack.decode(msgspec.msgpack.encode(row)) for row in rows])
    fold.read(reader)
    return reader.typed


@implementer(IFold)
class Recorder:
    """A fold that keeps the decisions it was shown, so that a test sees what was journaled."""

    name = "recorder"
    handles = tuple(kind for kind in typing.get_args(AnyRecord) if kind is not Started)

    def __init__(self) -> None:
        self.records: list[Any] = []

    def apply(self, lsn: int, record: Any, data: Any) -> None:
        self.records.append(record)

    def snapshot(self) -> Iterator[Any]:
        return iter(())

    def restore(self, rows: Iterable[Any]) -> None:
        assert not list(rows)


class Place:
    """A data directory in memory with an engine open over it, and topic ``t`` with partitions 1 and 2, or more."""

    def __init__(self, settings: JournalSettings | None = None, partitions: int = 2, **topic: Any) -> None:
        self.settings = settings or JournalSettings(file_bytes=1 << 20)
        self.filesystem = MemoryFilesystem()
        self.clock = ManualClock()
        self.engine: Engine = self.open()
        creation = self.engine.catalog.judge_creation(
            "t", partitions, TopicSettings(**topic), self.engine.now(), new_id()
        )
        self.engine.accept(creation)
        self.engine.sync()

    def open(self) -> Engine:
        self._recorder, self.groups = Recorder(), GroupsFold()
        self.engine = recover(self.filesystem, self.clock, self.settings, [self._recorder, self.groups])
        return self.engine

    def restart(self, checkpoint: bool = False) -> Engine:
        """Start again as after SIGKILL; with ``checkpoint`` from one instead of from the journal alone."""
        self.engine.sync()
        if checkpoint:
            self.checkpoint()
        self.filesystem = self.filesystem.kill_clone()
        return self.open()

    def checkpoint(self) -> None:
        """Write a checkpoint, even if nothing has happened since the last one."""
        self.engine.accept(Mark(self.engine.now()))
        self.engine.housekeeping.checkpoint_inline()

    def journaled(self) -> list[Any]:
        """Return the decisions since the last call (or those replayed by a start), oldest first."""
        records, self._recorder.records = self._recorder.records, []
        return records

    @property
    def transactions(self) -> Any:
        return self.engine.transactions

    def values(self, partition: int = 1) -> list[bytes | None]:
        """Return what a reader can see of a partition."""
        store = self.engine.catalog.stores[partition]
        offset, found = store.start_offset, []
        while data := store.read(offset, 1 << 20):
            found += frame.decode_run(data, offset)
            offset = found[-1].offset + 1
        assert [m.offset for m in found] == list(range(store.start_offset, offset))
        return [m.value for m in found]
