"""What the tests of transient queues share: scenes, transactions, and what is in files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from journal.check.verification import Level, verify
from journal.formats.filenames import TRANSIENT_DIRECTORY
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import (
    SELF,
    Scene,
    framed,
    values_of,
)
from tests.support.broker_room import Room
from tests.support.builders import small_files
from txbroker.wire import messages

KIB, MIB = 1 << 10, 1 << 20


def xid(name: str = "order 7") -> Xid:
    return Xid(1, name.encode(), b"")


def prepare(scene: Scene, serial: int, data: bytes, to: int = SELF, **more: Any) -> Any:
    runs = [(to, len(data))] if data else []
    return scene.peer.ask(
        messages.Prepare, serial, xid(str(serial)), Totals(0, 0, 0), runs=runs, data=data, **more
    )


def turns(scene: Scene) -> None:
    for _ in range(5):
        scene.room.timers.advance(0.01)
        scene.room.broker.dead_letters.try_again()
        scene.room.engine.sync()


def verified(scene: Scene) -> list[str]:
    """Return what a deep verification finds in what a kill leaves now."""
    disk = scene.room.filesystem.kill_clone()
    return [str(each) for each in verify(disk, Level.DEEP) if not each.harmless]


def flush(scene: Scene) -> None:
    engine = scene.room.engine
    engine.want_flush()
    for _ in range(3):
        for job in engine.jobs(engine.now()):
            job.run()
            engine.finish(job)


def filled(scene: Scene, count: int, name: str = "q") -> list[bytes]:
    """Publish more than fits into memory, flushing whenever that is wanted; return the values."""
    values = [b"%07d" % n + bytes(8 * KIB) for n in range(count)]
    for value in values:
        asked = scene.peer.tell(messages.Send, SELF, data=framed(name, value))
        scene.room.engine.sync()
        while (answer := scene.peer.answer(asked)) is None:
            flush(scene)
            scene.room.engine.sync()
        assert isinstance(answer, messages.Sent), answer
    return values


def files(scene: Scene) -> list[str]:
    disk = scene.room.filesystem
    if not disk.exists(TRANSIENT_DIRECTORY):
        return []
    folders = disk.list_directory(TRANSIENT_DIRECTORY)
    return [name for each in folders for name in disk.list_directory(f"{TRANSIENT_DIRECTORY}/{each}")]


def all_of(scene: Scene, queue: int) -> Iterator[bytes]:
    """Take and acknowledge everything."""
    while runs := (taken := scene.take(queue, 10)).runs:
        yield from values_of(taken, scene.peer)
        scene.acknowledge(queue, *[offset for first, count in runs for offset in range(first, first + count)])


def scene_with_little_memory(**settings: Any) -> Scene:
    journal = small_files(pool_bytes=1024 * KIB, **settings)
    return Scene(Room(journal))


class Walk(Protocol):
    """A random walk: ``done`` counts how often things happened in it."""

    done: Counter[str]

    def run(self) -> None: ...


def walked(begin: Callable[[int], Walk], seeds: range) -> Counter[str]:
    """Return how often things happened in the walks with these seeds."""
    done = Counter[str]()
    for seed in seeds:
        walk = begin(seed)
        walk.run()
        done += walk.done
    return done
