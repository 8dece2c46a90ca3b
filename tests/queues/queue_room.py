"""A broker with queues whose power can be cut at an operation on the disk, with limits so small that short histories
reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import journal.engine.engine
import journal.records.copies
import journal.settings
import txbroker.broker.passes
import txbroker.broker.queues.removals
import txbroker.queues.declarations
from journal.constants import KIB, MIB
from journal.engine.settings import JournalSettings
from journal.folds.table import client_folds
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem
from journal.testing.faults import Hook
from journal.xid import Xid
from tests.support.broker_room import Peer, Room
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.wire import messages

NEVER = 1 << 50
MOMENT = 0.001
"""Seconds after which a pass that has not got to its end goes on."""
SINGLE_GROUP = 1 << 16
"""Most records of a group that has all there are."""


class TinyJournal(JournalSettings, frozen=True, kw_only=True):
    """Settings of a journal that may be smaller than makes sense."""

    def check(self) -> JournalSettings:
        return self


@dataclass(frozen=True)
class Limits:
    """Those of one history. ``slices``: what goes to several queues is applied in slices. ``waits``: sessions wait for
    messages. ``staged``: how many bytes that were added to transactions are kept in memory, the others in files.
    ``endings``: messages, queues and exchanges end by themselves; ``expires``: messages also when their time is over.
    ``priorities``: messages have some, and queues. ``timeouts``: who acknowledges nothing in time loses it. ``delays``:
    messages wait at exchanges.
    """

    journal: JournalSettings
    segment_bytes: int
    force_messages: int
    slices: bool
    waits: bool
    staged: int
    group_records: int
    endings: bool
    expires: bool = False
    priorities: bool = False
    timeouts: bool = False
    delays: bool = False
    shared: int = 0
    """Bytes from which on a message for several queues is in memory once."""

    @staticmethod
    def drawn(random: Random) -> Limits:
        pick, waits = random.choice, random.random() < 0.5
        endings, priorities = random.random() < 0.75, random.random() < 0.4
        return Limits(
            TinyJournal(
                file_bytes=pick((16, 32, 128)) * KIB, pool_bytes=MIB, low_water_bytes=0,
                checkpoint_bytes=1 << 30, checkpoint_interval=NEVER, outcome_archive=pick((True, False)),
            ),
            segment_bytes=pick((200, 1000, 16 * MIB)), force_messages=pick((1, 4, 1000)),
            slices=random.random() < 0.25, waits=waits, staged=pick((0, 300, MIB, MIB)),
            group_records=SINGLE_GROUP if waits else pick((2, 5, SINGLE_GROUP)), endings=endings,
            expires=endings and (not priorities or random.random() < 0.5), priorities=priorities,
            timeouts=endings and random.random() < 0.5, delays=endings and random.random() < 0.5,
            shared=pick((0, 90, 4 * KIB)),
        )  # fmt: skip

    @property
    def is_slow(self) -> bool:
        """Whether commits take several turns, in which other requests wait: each is forced before the next is sent."""
        return self.slices or self.staged < MIB

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let segments and groups be as small as that."""
        declarations: Any = txbroker.queues.declarations
        least, log = journal.settings.RANGES["segment_bytes"], declarations._LOG
        records = journal.engine.engine.GROUP_RECORDS
        journal.settings.RANGES["segment_bytes"] = (100, least[1])
        declarations._LOG = TopicSettings(
            segment_bytes=self.segment_bytes, force_messages=self.force_messages
        )
        journal.engine.engine.GROUP_RECORDS = min(self.group_records, records)  # type: ignore[misc]
        shared = journal.records.copies.SHARED_BYTES
        journal.records.copies.SHARED_BYTES = self.shared  # type: ignore[misc]
        again = txbroker.broker.queues.removals.AGAIN
        txbroker.broker.queues.removals.AGAIN = 0  # type: ignore[misc]  # the model ends at once what it does
        busy, txbroker.broker.passes.AGAIN = txbroker.broker.passes.AGAIN, MOMENT  # type: ignore[misc]
        try:
            yield
        finally:
            journal.settings.RANGES["segment_bytes"] = least
            declarations._LOG = log
            journal.engine.engine.GROUP_RECORDS = records  # type: ignore[misc]
            journal.records.copies.SHARED_BYTES = shared  # type: ignore[misc]
            txbroker.broker.queues.removals.AGAIN = again  # type: ignore[misc]
            txbroker.broker.passes.AGAIN = busy  # type: ignore[misc]


class QueueRoom(Room):
    """A broker on a disk. Its clocks go on when another takes its place."""

    def __init__(
        self,
        limits: Limits,
        disk: MemoryFilesystem,
        clock: ManualClock,
        random: Callable[[int], bytes],
        hook: Hook | None = None,
    ) -> None:
        self.limits, self.disk, self._given, self._random = limits, disk, clock, random
        self.plan = FaultPlan(on_operation=hook)
        super().__init__(limits.journal)

    def start(self) -> None:
        self.filesystem = FaultFilesystem(self.disk, self.plan)  # type: ignore[assignment]
        self.clock, self.settings = self._given, BrokerSettings()
        self.engine = recover(
            self.filesystem, self.clock, self.journal, folds=client_folds(), random=self._random
        )
        self.engine.on_flush_wanted = lambda: None
        transactions = self.engine.transactions
        if self.limits.slices:
            transactions.table.application.small_bytes, transactions.table.application.slice_bytes = 100, 100
        transactions.staging._budget = self.limits.staged
        self.broker = self.made_broker()
        self.engine.sync()

    def made_broker(self) -> Broker:
        return Broker(self.engine, self.settings, call_later=self.timers.callLater, random=self._random)

    def checkpoint(self) -> None:
        self.engine.housekeeping.checkpoint_inline()

    def disarm(self) -> None:
        """Cut no power."""
        self.plan.on_operation = None


class Client(Peer):
    """One connection of a client: its ``name`` is that of the session in the model."""

    def __init__(self, room: Room, name: str, inbox: list[Any], after: Any = None) -> None:
        self.name, self.inbox, self.serial = name, inbox, 0
        super().__init__(room, after=after)

    def _deliver(self, data: bytes) -> None:
        before = len(self.answers)
        super()._deliver(data)
        for answer, part in zip(self.answers[before:], self.data[before:], strict=True):
            self.inbox.append((self, answer, part))


def xid_of(name: str) -> Xid:
    return Xid(1, name.encode(), b"")


__all__ = ["Client", "Limits", "QueueRoom", "messages", "xid_of"]
