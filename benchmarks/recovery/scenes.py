"""Scenes of starts: data directories built by the engine inline, as a killed broker would have left them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness.frames import BATCH, BATCH_BYTES, KIB_BODY, SINGLE, TIMESTAMP
from journal.constants import GROUP_BYTES, MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import MemoryExhausted
from journal.folds.table import client_folds
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.parties import ANONYMOUS, Owner
from journal.random_id import new_id
from journal.records.record import ProducerOpened
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.transaction_states import Cause, TransactionNumber
from journal.transactions.unsent import Unsent
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid

TOPIC: Final = "recovery"
KIB_SINGLE: Final = frame.encode(KIB_BODY, TIMESTAMP)
SETTINGS: Final = JournalSettings(checkpoint_bytes=1 << 40, checkpoint_interval=1 << 50)
"""Settings under which checkpoints are made only when the scene asks for them."""

VARIED: Final = cycle([frame.encode(bytes(20 + 37 * number % 161), TIMESTAMP) for number in range(161)])
"""Message sizes: 100 B on average, and neighbours mostly differ."""

PRODUCER: Final = 1
PREPARED_SESSION: Final = 1
COMMITTED_SESSION: Final = 2
"""The first of the sessions that commit."""
CLIENTS: Final = 64
OWNERS: Final = [Owner(ANONYMOUS, "", f"127.0.0.1:{40000 + client}") for client in range(CLIENTS)]


class Scene(NamedTuple):
    """A data directory to start from. ``mebibytes`` of journal above the checkpoint hold ``load``.

    ``stopped``: the broker that left it was stopped cleanly, so nothing is above the checkpoint. ``prepared``
    transactions of one message each are in doubt.
    """

    load: str = "singles"
    mebibytes: int = 0
    partitions: int = 1
    prepared: int = 0
    stopped: bool = False

    @property
    def title(self) -> str:
        parts = ["clean stop" if self.stopped else "SIGKILL"]
        if self.mebibytes:
            parts.append(f"{self.mebibytes} MiB of {TITLES[self.load]}")
        if self.partitions > 1:
            parts.append(f"{self.partitions:,} partitions")
        if self.prepared:
            parts.append(f"{self.prepared:,} prepared")
        return ", ".join(parts)


class Builder:
    """A builder of scenes: an engine over a directory of its own, which is used until it is as if killed."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._folder = folder
        filesystem = OSFilesystem(folder)
        self.engine: Engine = recover(filesystem, SystemClock(), SETTINGS, client_folds())
        self._serial = self._sequence = 0
        stores = self._create(partitions)
        self._sequences = dict.fromkeys(stores, 0)
        self._turn = cycle(stores)
        self._checkpoint()
        self._journaled = self.engine.journaled_bytes

    def _create(self, partitions: int) -> list[MessageStore]:
        """Make the topic, with a message in the segment of each partition; and a producer."""
        engine = self.engine
        catalog = engine.catalog
        engine.accept(catalog.judge_creation(TOPIC, partitions, TopicSettings(), engine.now(), new_id()))
        engine.accept(ProducerOpened(PRODUCER, 1, "", engine.now(), bytes(16)))
        stores = catalog.topics[TOPIC].partitions
        for store in stores:
            engine.append(store, SINGLE, 1)
        return stores

    def _checkpoint(self) -> None:
        self.engine.housekeeping.checkpoint_inline()

    def settle(self) -> None:
        """Write and force what has been accepted; flush what is due."""
        self.engine.sync()
        self.engine.housekeeping.run_inline()

    def close(self) -> None:
        """Close the directory without a mark or a checkpoint, as if killed."""
        self.engine.close()

    def copy(self, to: Path) -> Path:
        """Copy the files as a broker that is killed now would leave them."""
        self.settle()
        shutil.copytree(self._folder, to)
        return to

    def fill(self, load: str, mebibytes: int) -> None:
        """Work until that much of the journal is above the checkpoint."""
        one = LOADS[load]
        engine = self.engine
        goal = self._journaled + mebibytes * MIB
        while engine.journaled_bytes + engine.pending_bytes < goal:
            one(self)
            if engine.pending_bytes >= GROUP_BYTES:
                self.settle()
        self.settle()

    def send(self, frames: bytes, count: int) -> None:
        """Send a request to the next partition as a producer, which every client of this project is."""
        store = next(self._turn)
        sequence = self._sequences[store]
        self._sequences[store] = sequence + count
        try:
            self.engine.append(store, frames, count, PRODUCER, 1, sequence)
        except MemoryExhausted:
            self.engine.sync()
            self.engine.housekeeping.want_flush()
            self.settle()
            self.engine.append(store, frames, count, PRODUCER, 1, sequence)

    def commit(self) -> None:
        """Commit a transaction of one message in one request, as the next of some clients that know their outcomes."""
        self._serial += 1
        round_, client = divmod(self._serial, CLIENTS)
        self.engine.transactions.commit(
            TransactionNumber(COMMITTED_SESSION + client, round_ + 1),
            Cause.CLIENT,
            seen=round_,
            unsent=Unsent([(next(self._turn).number, 1, SINGLE, ())]),
            owner=OWNERS[client],
        )

    def prepare(self, transactions: int) -> None:
        """Prepare transactions of one message, without a decision."""
        for serial in range(1, transactions + 1):
            number = TransactionNumber(PREPARED_SESSION, serial)
            xid = Xid(1, b"order-%d" % serial, b"broker")
            unsent = Unsent([(next(self._turn).number, 1, SINGLE, ())])
            self.engine.transactions.prepare(number, xid, owner=OWNERS[serial % CLIENTS], unsent=unsent)
            if self.engine.pending_bytes >= GROUP_BYTES:
                self.settle()
        self.settle()


LOADS: Final[dict[str, Callable[[Builder], None]]] = {
    "singles": lambda builder: builder.send(SINGLE, 1),
    "varied": lambda builder: builder.send(next(VARIED), 1),
    "batches": lambda builder: builder.send(BATCH_BYTES, BATCH),
    "kib": lambda builder: builder.send(KIB_SINGLE, 1),
    "transactions": Builder.commit,
}
TITLES: Final = {
    "singles": "100 B singles",
    "varied": "20 to 180 B singles",
    "batches": "batches of 100 × 100 B",
    "kib": "1 KiB singles",
    "transactions": "one-phase transactions",
}


def build(folder: Path, scenes: list[Scene]) -> Iterator[tuple[Scene, Path]]:
    """Yield each scene with its directory, which is removed when the next one is asked for.

    Scenes that differ only in ``mebibytes`` are built once and copied as they grow.
    """
    shutil.rmtree(folder, ignore_errors=True)
    builder: Builder | None = None
    before: Scene | None = None
    try:
        for scene in scenes:
            if builder is None or before is None or not _continues(before, scene):
                if builder is not None:
                    builder.close()
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                builder = Builder(folder / "built", scene.partitions)
                builder.prepare(scene.prepared)
            builder.fill(scene.load, scene.mebibytes)
            before = scene
            yield scene, builder.copy(folder / "data")
            shutil.rmtree(folder / "data")
    finally:
        if builder is not None:
            builder.close()
        shutil.rmtree(folder, ignore_errors=True)


def _continues(before: Scene, scene: Scene) -> bool:
    return before._replace(mebibytes=scene.mebibytes) == scene and before.mebibytes <= scene.mebibytes
