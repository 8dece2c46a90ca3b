"""Data directories that are made deterministically, one named step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random

from journal.records.group_entries import PartitionOffset
from journal.records.record import (
    LogStartMoved,
    OffsetsCommitted,
    PartitionsClaimed,
    ProducerOpened,
    TopicDeleted,
    TransactionsForgotten,
)
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause
from tests.support.damage.damaged_store import BIG, DamagedStore
from tests.support.engine_room import contents, run_of, xid_of


class World:
    """A directory in the making. ``steps`` has the LSNs that each step journaled, first one inclusive, last one not.

    ``older`` is the directory as it was at :meth:`remember`.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.store = DamagedStore(MemoryFilesystem(), self._random.randbytes)
        self.steps: dict[str, tuple[int, int]] = {}
        self._note_start("first start")
        self.older: dict[str, bytes] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[DamagedStore]:
        """Name what is journaled in this context."""
        assert name not in self.steps, name
        first = self.store.engine.next_lsn
        yield self.store
        self.steps[name] = (first, self.store.engine.next_lsn)

    def restart(self, name: str) -> None:
        self.store = self.store.restarted()
        self._note_start(name)

    def _note_start(self, name: str) -> None:
        """Name the record of a start."""
        end = self.store.engine.next_lsn
        self.steps[name] = (end - 1, end)

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def remember(self) -> None:
        self.older = contents(self.store.disk())

    def sends(self, name: str, number: int, *values: bytes) -> None:
        with self.step(name) as store:
            store.send(number, *values)

    def commits(self, name: str, *adds: tuple[int, bytes]) -> None:
        with self.step(name) as store:
            store.begin(*adds).commit()
            store.settle()

    def prepares(self, name: str, *adds: tuple[int, bytes]) -> None:
        with self.step(name) as store:
            store.begin(*adds).prepare(name)
            store.settle()

    def decides(self, name: str, prepared: str, commit: bool = True, cause: Cause = Cause.CLIENT) -> None:
        with self.step(name) as store:
            transactions = store.engine.transactions
            end = transactions.commit if commit else transactions.rollback
            end(transactions.find(xid_of(prepared)), cause)
            store.settle()

    def idles(self, name: str) -> None:
        with self.step(name) as store:
            store.idle()


def _plain(world: World) -> None:
    """Sends alone, of one message and of many, over several journal files and two starts; no checkpoint."""
    with world.step("topics") as store:
        store.topic("a", 2)  # 1, 2
        store.topic("b", 1, segment_bytes=175)  # 3
    for number in range(4):
        world.sends(f"one {number}", 1 + number % 3, b"one %d" % number)
    world.sends("batch 1", 1, *(b"batch %d" % number for number in range(9)))
    world.remember()
    world.sends("big 1", 2, BIG)
    world.sends("batch 2", 3, b"x" * 100, b"y" * 100, b"z" * 100)
    world.restart("second start")
    world.sends("one 4", 2, b"one 4")
    world.sends("big 2", 1, BIG, b"small")
    for number in range(5, 10):
        world.sends(f"one {number}", 1 + number % 3, b"one %d" % number)
    world.idles("idle")


def _transactions(world: World) -> None:
    """Transactions that end in every way, and some that do not, over two starts; no checkpoint."""
    with world.step("topics") as store:
        store.topic("a", 2)  # 1, 2
        store.topic("b", 1)  # 3
    world.commits("one phase", (1, b"in one phase"))
    world.commits("of two partitions", (1, b"both"), (3, b"of them"))
    world.prepares("kept", (1, b"kept one"), (2, b"kept two"))
    world.prepares("decided", (2, b"decided"))
    world.prepares("undone", (3, b"undone"))
    world.decides("commit", "decided")
    world.remember()
    world.decides("rollback", "undone", commit=False)
    with world.step("dropped") as store:
        store.begin((1, b"dropped")).rollback()
        store.settle()
    world.prepares("forced", (1, b"by hand"))
    world.decides("by hand", "forced", cause=Cause.OPERATOR)
    with world.step("begun") as store:
        store.begin((2, b"only begun"))
        store.settle()
    world.restart("second start")
    world.commits("big", (1, BIG), (2, BIG[:100]), (3, BIG[:50]))
    world.prepares("late", (3, b"late"), (3, b"later"))
    with world.step("several") as store:  # in one group
        for number in range(4):
            store.begin((1 + number % 3, b"several %d" % number)).commit()
        store.settle()
    world.idles("idle")


def _everything(world: World) -> None:
    """Every capability, retention, checkpoints, staged files, and work above the newest checkpoint; three starts."""
    with world.step("topics") as store:
        store.topic("a", 2)  # 1, 2
        store.topic("b", 1, segment_bytes=175)  # 3
        store.topic("gone", 1)  # 4
    world.sends("to the deleted", 4, b"never seen again")
    with world.step("producer") as store:
        store.accept(ProducerOpened(1, 1, "p", store.engine.now(), bytes(16)))
    with world.step("produced") as store:
        store.send(1, b"first", producer_id=1, epoch=1, sequence=0)
    for number in range(6):
        world.sends(f"rolls {number}", 3, b"rolls %d" % number)
    world.prepares("old", (1, b"stage one"), (2, b"stage two"))
    world.prepares("odd", (1, b"other one"), (2, b"other two"))
    world.commits("early", (1, b"both"), (3, b"of them"))
    with world.step("group") as store:
        store.accept(PartitionsClaimed("g", "m", [(1, 1)], store.engine.now()))
        store.accept(OffsetsCommitted("g", [PartitionOffset(1, 1, 1, "note")], store.engine.now()))
    world.checkpoint()
    world.remember()
    world.sends("big 1", 2, BIG)
    world.sends("big 2", 2, BIG)
    with world.step("deletes") as store:
        store.accept(TopicDeleted("gone", store.engine.now()))
    world.decides("odd ends", "odd", commit=False)
    world.checkpoint()
    world.restart("second start")
    world.sends("of second start", 1, b"second start")
    with world.step("moved") as store:
        store.accept(LogStartMoved(3, 2, store.engine.now()))
    world.checkpoint()
    world.sends("newest", 1, b"after", b"the newest checkpoint")
    world.prepares("new", (1, b"late"), (2, b"later"))
    world.idles("idle 2")
    world.restart("third start")
    world.sends("of third start", 3, b"third start")
    world.commits("last", (1, b"x"), (2, b"y"))
    with world.step("forgets") as store:
        number = store.begin((1, b"z")).commit().number
        store.accept(TransactionsForgotten([number], 0, store.engine.now()))
    with world.step("positions") as store:
        store.accept(OffsetsCommitted("g", [PartitionOffset(2, 3, 0)], store.engine.now()))
    world.idles("idle 3")


def _busy(world: World) -> None:
    """Killed while it was busy: the last groups were forced, and nothing says so; several records in a group."""
    with world.step("topics") as store:
        store.topic("a", 2)  # 1, 2
        store.topic("b", 1)  # 3
    world.sends("quiet", 1, b"quiet")
    world.prepares("kept", (1, b"kept"))
    world.remember()
    world.checkpoint()
    world.sends("above", 2, b"above the checkpoint")
    with world.step("several sends") as store:
        for number in range(5):
            store.engine.append(store.engine.catalog.stores[1 + number % 3], run_of(b"many %d" % number), 1)
        store.engine.sync()
    with world.step("mixed") as store:
        store.begin((1, b"in a group"), (2, b"of many")).commit()
        store.engine.append(store.engine.catalog.stores[3], run_of(b"beside"), 1)
        store.begin((3, b"with one")).prepare("mixed")
        store.begin((3, b"without")).rollback()
        store.engine.sync()
    with world.step("very last") as store:
        store.engine.append(store.engine.catalog.stores[2], run_of(b"v" * 9000), 1)
        store.begin((1, b"w" * 3000)).commit()
        store.engine.sync()


RECIPES: dict[str, Callable[[World], None]] = {
    "plain": _plain,
    "transactions": _transactions,
    "everything": _everything,
    "busy": _busy,
}


@cache
def made(name: str, seed: int = 1) -> World:
    """That directory; another seed gives one that differs in what a start draws at random, and in nothing else."""
    world = World(seed)
    RECIPES[name](world)
    return world
