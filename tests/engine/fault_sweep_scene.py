"""The scene of the fault sweep: fixed work of a broker's engine over files that may fail, and the state it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from journal.constants import KIB
from journal.engine.engine import Engine
from journal.folds.table import client_folds
from journal.formats import frame
from journal.records.group_entries import PartitionOffset
from journal.records.record import (
    LogStartMoved,
    OffsetsCommitted,
    ProducerOpened,
    TopicCreated,
    TopicDeleted,
)
from journal.recovery.start import recover
from journal.settings import MAX_INTERVAL, TopicSettings
from journal.testing import FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, State, TransactionNumber
from tests.support.damage.damaged_store import SECOND, SETTINGS
from tests.support.engine_room import Begun, run_of, xid_of

BIG = b"v" * (20 * KIB)


class Scene:
    """The engine at work over a disk with a plan of what fails there. Its attributes make it a room for `Begun`."""

    def __init__(self, inner: MemoryFilesystem | None = None, plan: FaultPlan | None = None) -> None:
        self.inner = inner if inner is not None else MemoryFilesystem()
        self.plan = plan or FaultPlan()
        self.clock = ManualClock(monotonic=SECOND)
        self._serial = 0
        self.engine: Engine = self._recover()

    def _recover(self) -> Engine:
        return recover(FaultFilesystem(self.inner, self.plan), self.clock, SETTINGS, folds=client_folds())

    # -- what the work consists of --------------------------------------------------------------------

    def topic(self, name: str, partitions: int, segment_bytes: int = 1 << 20) -> None:
        settings = TopicSettings(
            force_messages=10**9, force_interval=MAX_INTERVAL, segment_bytes=segment_bytes
        )
        first = self.engine.catalog.next_partition
        self.decide(TopicCreated(name, first, partitions, settings, self.engine.now()))

    def alter(self, name: str, partitions: int = 0, **changes: int | None) -> None:
        catalog = self.engine.catalog
        self.decide(catalog.judge_alteration(catalog.topics[name], changes, self.engine.now(), partitions))

    def decide(self, decision: Any) -> None:
        self.engine.accept(decision)
        self.settle()

    def send(self, number: int, *values: bytes, **producer: int) -> None:
        self.engine.append(self.engine.catalog.stores[number], run_of(*values), len(values), **producer)
        self.settle()

    def begin(self, *adds: tuple[int, bytes]) -> Begun:
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 7, self._serial)
        return Begun(self, number).add(*adds)  # type: ignore[arg-type]

    def end(self, name: str, commit: bool) -> None:
        transactions = self.engine.transactions
        number = transactions.find(xid_of(name))
        transactions.commit(number, Cause.CLIENT) if commit else transactions.rollback(number, Cause.CLIENT)
        self.settle()

    def settle(self) -> None:
        """Force, and do what is due, as a broker does beside its requests."""
        self.engine.sync()
        self.clock.advance(SECOND)
        self.engine.housekeeping.run_inline()

    def flush(self) -> None:
        self.engine.want_flush()
        self.engine.housekeeping.run_inline()

    def checkpoint(self) -> None:
        self.engine.housekeeping.checkpoint_inline()

    def read_all(self) -> None:
        for store in self.engine.catalog.stores.values():
            for offset in reversed(range(store.start_offset, store.high_watermark)):
                store.read(offset, 1)

    def stop(self) -> None:
        self.engine.mark()
        self.checkpoint()
        self.engine.close()
        self.engine = self._recover()

    def die(self) -> None:
        self.engine.lock.release()
        self.inner = self.inner.kill_clone()
        self.engine = self._recover()

    # -- what can be seen of it -------------------------------------------------------------------------

    def state(self) -> Any:
        """All that clients can find out, but for times."""
        transactions = self.engine.transactions
        folded = {fold.name: fold for fold in self.engine.folds}
        return (
            {number: self.values(number) for number in self.engine.catalog.stores},
            {
                name: (topic.settings, [store.number for store in topic.partitions])
                for name, topic in self.engine.catalog.topics.items()
            },
            {t.xid for t in transactions.live.values() if t.state is State.PREPARED},
            {(o.number, o.state) for o in transactions.outcomes.by_number.values()},
            msgspec.msgpack.encode(list(folded["groups"].snapshot())),
            {number: p.epoch for number, p in folded["producers"].producers.items()},
        )

    def values(self, number: int) -> list[tuple[int, bytes | None]]:
        store = self.engine.catalog.stores[number]
        offset, found = store.start_offset, []
        while data := store.read(offset, 256 * KIB):
            for message in frame.decode_run(data, offset):
                found.append((message.offset, message.value))
                offset = message.offset + 1
        assert offset == store.high_watermark
        return found


Step = Callable[[Scene], Any]
STEPS: dict[str, Step] = {
    "topic a": lambda s: s.topic("a", 2),
    "topic b": lambda s: s.topic("b", 1, segment_bytes=30_000),
    "topic gone": lambda s: s.topic("gone", 1),
    "send": lambda s: s.send(1, b"first", b"second"),
    "send to what will go": lambda s: s.send(4, b"never"),
    "producer": lambda s: s.decide(ProducerOpened(1, 1, "p", s.engine.now(), bytes(16))),
    "send of a producer": lambda s: s.send(2, b"numbered", producer_id=1, epoch=1, sequence=0),
    "prepare": lambda s: (s.begin((1, b"p"), (2, b"p" + BIG)).prepare("p"), s.settle()),
    "big": lambda s: s.send(3, BIG),
    "one phase": lambda s: (s.begin((1, b"both"), (3, b"both")).commit(), s.settle()),
    "positions": lambda s: s.decide(OffsetsCommitted("g", [PartitionOffset(1, 1)], s.engine.now())),
    "flush": lambda s: s.flush(),
    "checkpoint": lambda s: s.checkpoint(),
    "rolled back": lambda s: (s.begin((1, b"no")).rollback(), s.settle()),
    "delete": lambda s: s.decide(TopicDeleted("gone", s.engine.now())),
    "bigger": lambda s: s.send(3, BIG, b"and more"),
    "second checkpoint": lambda s: s.checkpoint(),
    "retention": lambda s: s.decide(LogStartMoved(3, 1, s.engine.now())),
    "settings": lambda s: s.alter("a", retention_bytes=1 << 40),
    "big again": lambda s: s.send(3, BIG),
    "third checkpoint": lambda s: s.checkpoint(),
    "more partitions": lambda s: s.alter("b", 2),
    "send to a new one": lambda s: s.send(5, b"new"),
    "read": lambda s: s.read_all(),
    "commit of the staged": lambda s: s.end("p", commit=True),
    "prepare another": lambda s: (s.begin((2, b"q")).prepare("q"), s.settle()),
    "clean stop and start": lambda s: s.stop(),
    "send after the start": lambda s: s.send(1, b"third"),
    "kill and start": lambda s: s.die(),
    "send after the kill": lambda s: s.send(2, b"fourth"),
    "rollback": lambda s: s.end("q", commit=False),
    "big at the end": lambda s: s.send(1, BIG),
    "last checkpoint": lambda s: s.checkpoint(),
    "read at the end": lambda s: s.read_all(),
}
