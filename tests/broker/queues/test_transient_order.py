"""Test in random walks what readers of transient and durable queues see while the engine takes, writes and publishes
groups at any time: each queue's messages in their order, each once, and none that a durable queue gets too before it is
on the disk (decision 0068).

Seen to fail: with many runs or many bytes for transient queues applied in one turn, with messages for both kinds not
journaled, with ends shown when a group is taken, at once where the filling group has no record yet, or, of what is
applied in slices, before its force, with what waits for a group without records called at once, with no group for what
is not journaled, with a publication applied as it is journaled, with the start of a log not moved by acknowledgements,
with segments kept that end before the memory behind them begins, and with memory released below the start while a
flush is under way.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import Any, NamedTuple

import pytest

from journal.constants import SLICED_COMMIT_BYTES
from journal.records.copies import SHARED_BYTES
from journal.records.queue_entries import QUEUE_GROUP, ExchangeKind
from journal.records.transient import MOST_RUNS
from journal.transaction_states import Totals
from journal.wal.group import Group
from tests.broker.queues.scene import SECOND, SELF, Scene, framed, settled, values_of
from tests.broker.queues.transient_scene import MIB, walked
from tests.support.broker_room import Peer, Room
from tests.support.builders import small_files
from txbroker.wire import messages

TRANSIENT = ("passing", "exclusive", "third")
QUEUES = (*TRANSIENT, "lasting")
STEPS = 150
MOST_STEPS = 50_000
"""Steps after which a walk that has not ended never will."""
HEAD = len(b"message 00000")
"""A message begins with so many bytes that no other has."""


class Asked(NamedTuple):
    """A request that may not be answered yet."""

    peer: Peer
    correlation: int
    heads: list[bytes]
    """The heads of the messages that it sends."""


class Walk:
    """Random sends and takes between the steps of the engine, of which each may come at any time."""

    def __init__(self, seed: int, slice_bytes: int) -> None:
        self.random = Random(seed)
        self.scene = Scene(Room(small_files(pool_bytes=64 * MIB)))
        self.engine = self.scene.room.engine
        application = self.engine.transactions.table.application
        application.slice_bytes = application.small_bytes = slice_bytes
        self.numbers = {
            "passing": self.scene.queue("passing", durable=False),
            "exclusive": self.scene.queue("exclusive", exclusive=True),
            "third": self.scene.queue("third", durable=False),
            "lasting": self.scene.queue("lasting"),
        }
        self.exchanges = {
            "mixed": self.fanout("mixed", "passing", "lasting"),
            "volatile": self.fanout("volatile", *TRANSIENT),
        }
        self.sent: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.got: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.shown = dict.fromkeys(QUEUES, 0)
        """How many messages of each queue readers may have seen."""
        self.unforced = set[bytes]()
        """Heads of messages that durable queues get and that are not on the disk yet."""
        self.asked: list[Asked] = []
        self.takes: dict[str, Asked] = {}
        self.under_way: Group | None = None
        self.written = False
        """Whether the group that is under way is on the disk."""
        self.jobs: list[Any] = []
        self.sent_large = 0
        """Sends to transient queues alone that are too large for one turn."""
        self.sliced = set[int]()
        """LSNs of those that were applied in slices."""
        self.serial = self.count = 0
        self.done = Counter[str]()

    def fanout(self, name: str, *queues: str) -> int:
        to = self.scene.exchange(name, ExchangeKind.FANOUT)
        for queue in queues:
            self.scene.bind(name, "", queue)
        return to

    def run(self) -> None:
        """Walk, and take and acknowledge everything that is left; then compare."""
        large = self.random.randrange(2 * STEPS)
        for step in range(STEPS):
            if step == large:
                self.send_much()
            getattr(self, self.random.choice(("send", "send", "commit", "take", *["step_engine"] * 4)))()
            self.collect()
        for _ in range(MOST_STEPS):
            if self.is_at_rest():
                break
            for name in QUEUES:
                if len(self.got[name]) < len(self.sent[name]):
                    self.take_from(name, most=100)
            self.step_engine()
            self.collect()
        self.check()

    def is_at_rest(self) -> bool:
        waits = self.asked or self.takes or self.under_way or self.jobs or self.engine.busy
        return not waits and self.engine.newest_times() is None and self.got == self.sent

    def check(self) -> None:
        assert self.got == self.sent
        assert self.is_at_rest()
        assert len(self.sliced) == self.sent_large, "what is too large for a turn was applied in one"
        for name in TRANSIENT:
            store = self.engine.catalog.stores[self.numbers[name]]
            assert store.start_offset == len(self.sent[name]), "what is acknowledged is still there"
            assert store.unflushed_bytes == 0, "what is acknowledged takes memory"

    # -- what clients do -----------------------------------------------------------------------------------

    def message(self, size: int) -> bytes:
        self.count += 1
        return b"message %05d" % self.count + bytes(size)

    def noted(self, values: list[bytes], *queues: str) -> list[bytes]:
        """Note that these are sent to these queues; return their heads."""
        heads = [value[:HEAD] for value in values]
        for name in queues:
            self.sent[name] += heads
        if "lasting" in queues:
            self.unforced.update(heads)
        return heads

    def contents(self) -> tuple[int, bytes, list[bytes]]:
        """Return an address, messages for it, and their heads."""
        values = [self.message(self.random.choice((10, 3_000))) for _ in range(self.random.randint(1, 3))]
        match self.random.choice(("passing", "lasting", "mixed", "volatile")):
            case "mixed":
                return self.exchanges["mixed"], framed("", *values), self.noted(values, "passing", "lasting")
            case "volatile":
                return self.exchanges["volatile"], framed("", *values), self.noted(values, *TRANSIENT)
            case name:
                return SELF, framed(name, *values), self.noted(values, name)

    def send(self) -> None:
        if self.random.random() < 0.05:
            self.send_many_ways()
        else:
            to, data, heads = self.contents()
            self.tell_send(to, data, heads)

    def tell_send(self, to: int, data: bytes, heads: list[bytes]) -> None:
        peer = self.scene.peer
        self.asked.append(Asked(peer, peer.tell(messages.Send, to, data=data), heads))
        self.done["sends"] += 1

    def send_many_ways(self) -> None:
        """Send more runs to transient queues than are applied in one turn."""
        values = [self.message(0) for _ in range(MOST_RUNS + 1)]
        ways = ("passing", "third")
        for place, name in enumerate(ways):
            self.noted(values[place :: len(ways)], name)
        data = b"".join(framed(ways[place % len(ways)], value) for place, value in enumerate(values))
        self.note_large("sends of many runs")
        self.tell_send(SELF, data, [value[:HEAD] for value in values])

    def send_much(self) -> None:
        """Send more bytes to transient queues than are applied in one turn: 18 MiB to three together. No message is so
        large that it is in memory once.
        """
        values = [self.message(SHARED_BYTES - 200) for _ in range(6 * MIB // (SHARED_BYTES - 200) + 1)]
        self.note_large("sends of many bytes")
        self.tell_send(self.exchanges["volatile"], framed("", *values), self.noted(values, *TRANSIENT))

    def note_large(self, kind: str) -> None:
        self.sent_large += 1
        self.done[kind] += 1

    def commit(self) -> None:
        to, data, heads = self.contents()
        self.serial += 1
        peer = self.scene.peer
        asked = peer.tell(
            messages.Commit, serial=self.serial, totals=Totals(0, 0, 0), runs=[(to, len(data))], data=data
        )
        self.asked.append(Asked(peer, asked, heads))
        self.done["commits"] += 1

    def take(self) -> None:
        self.take_from(self.random.choice(QUEUES), self.random.randint(1, 4))

    def take_from(self, name: str, most: int) -> None:
        if name not in self.takes:
            peer = self.scene.peer if name == "exclusive" else self.scene.other
            wait = self.random.choice((0, 1_000 * SECOND))
            asked = peer.tell(messages.TakeMessages, self.numbers[name], most, max_wait=wait)
            self.takes[name] = Asked(peer, asked, [])

    def collect(self) -> None:
        """Look at what is shown and what was answered, and acknowledge what was taken."""
        for name, number in self.numbers.items():
            end = self.engine.catalog.stores[number].high_watermark
            shown, self.shown[name] = self.sent[name][self.shown[name] : end], end
            assert self.unforced.isdisjoint(shown), "shown before it is on the disk"
        for each in list(self.asked):
            if (answer := each.peer.answer(each.correlation)) is not None:
                assert isinstance(answer, messages.Sent | messages.Committed), answer
                assert self.unforced.isdisjoint(each.heads), "answered before it is on the disk"
                self.asked.remove(each)
        for name, each in list(self.takes.items()):
            if (answer := each.peer.answer(each.correlation)) is not None:
                assert isinstance(answer, messages.Taken), answer
                del self.takes[name]
                if answer.runs:
                    self.acknowledge(name, answer, each.peer)
        assert not self.engine.failed, self.engine.failed

    def acknowledge(self, name: str, taken: messages.Taken, peer: Peer) -> None:
        heads = [value[:HEAD] for value in values_of(taken, peer)]
        assert self.unforced.isdisjoint(heads), "given before it is on the disk"
        self.got[name] += heads
        self.done[name] += len(heads)
        offsets = [offset for first, count in taken.runs for offset in range(first, first + count)]
        what = [settled(self.numbers[name], *offsets)]
        peer.tell(messages.CommitOffsets, QUEUE_GROUP, [], settled=what)

    # -- what the engine does ------------------------------------------------------------------------------

    def step_engine(self) -> None:
        getattr(self, self.random.choice(("take_group", "write", "publish", "slice", "flush", "run_job")))()

    def take_group(self) -> None:
        if self.under_way is None:
            self.under_way, self.written = self.engine.take(), False

    def write(self) -> None:
        if self.under_way is not None and not self.written:
            data = b"".join(self.under_way.pieces)
            self.engine.write(self.under_way)
            self.unforced = {head for head in self.unforced if head not in data}
            self.written = True

    def publish(self) -> None:
        if self.under_way is not None and self.written:
            group, self.under_way = self.under_way, None
            self.done["groups without a record"] += not group.count
            self.engine.publish(group)

    def slice(self) -> None:
        commit = self.engine.large_commits.current
        if commit is not None:
            self.done["slices"] += 1
            if not commit.number.serial and all(store.is_transient for store in commit.stores):
                self.sliced.add(commit.lsn)
            self.engine.continue_apply()

    def flush(self) -> None:
        """Begin a flush; its jobs run later."""
        if not self.jobs and self.random.random() < 0.3:
            self.engine.want_flush()
            self.jobs = list(self.engine.jobs(self.engine.now()))
            self.done["flushed logs"] += len(self.jobs)

    def run_job(self) -> None:
        if self.jobs:
            job = self.jobs.pop(0)
            job.run()
            self.engine.finish(job)


HAPPENS = {
    "sends", "sends of many runs", "sends of many bytes", "commits", "slices", "flushed logs",
    "groups without a record", *QUEUES,
}  # fmt: skip
SLICES = (2_000, 20_000, SLICED_COMMIT_BYTES)


@pytest.mark.sampled
@pytest.mark.parametrize("slice_bytes", SLICES)
def test_each_queue_gets_its_messages_in_order_and_none_before_its_force(slice_bytes: int):
    assert set(walked(partial(Walk, slice_bytes=slice_bytes), range(2))) == HAPPENS


@pytest.mark.deep
@pytest.mark.parametrize("slice_bytes", SLICES)
def test_it_does_in_thousands_of_walks(slice_bytes: int):
    assert set(walked(partial(Walk, slice_bytes=slice_bytes), range(1_000, 1_700))) == HAPPENS
