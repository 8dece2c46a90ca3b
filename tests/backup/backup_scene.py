"""The scene of backups: an engine at work whose directory has all there can be, and what it holds."""

from __future__ import annotations

from journal.backup.creation import Made, make_backup
from journal.backup.holds import EngineHold
from journal.backup.restoring import RestoredDirectory, restore
from journal.constants import KIB
from journal.records.record import LogStartMoved, TopicDeleted
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, TransactionNumber
from journal.xid import Xid
from tests.support.engine_room import SMALL, Room

BIG = b"v" * (20 * KIB)
SMALL_SEGMENTS = {"segment_bytes": 64 * KIB}
WHEN = 1_800_000_000_000_000


def clock() -> ManualClock:
    return ManualClock(monotonic=1_000_000, wall=WHEN)


def lived_in() -> Room:
    """An engine with closed and open segments, staged files, and a journal above its checkpoint."""
    room = Room()
    room.topic("t", 2, **SMALL_SEGMENTS)
    room.topic("short", 1)
    for number in range(6):
        room.send(b"first %d" % number, BIG)
        room.send(b"second %d" % number, number=2)
    room.send(b"of the short one", number=3)
    room.begin((1, b"prepared early"), (2, b"of two")).prepare("early").sync()
    room.begin((1, b"active, staged")).sync()
    room.flush()
    room.checkpoint()
    room.send(b"between two checkpoints")
    room.checkpoint()
    room.send(b"above the checkpoint")
    room.begin((2, b"prepared late")).prepare("late").sync()
    room.begin((1, b"active")).sync()
    room.send(b"last before the cut", number=2)
    return room


def work_on(room: Room, number: int) -> None:
    """Do a piece of everything that changes files: append, flush, write checkpoints, stage, drop, delete, roll."""
    room.send(b"after the cut %d" % number, BIG, BIG)
    room.begin((1, b"after the cut"), (1, BIG)).prepare(f"after {number}").sync()
    room.flush()
    room.checkpoint()
    engine = room.engine
    if number == 2:
        engine.transactions.rollback(engine.transactions.find(xid("early")), Cause.CLIENT)
    if number == 3:
        engine.accept(LogStartMoved(1, 5, engine.now()))
    if number == 4:
        engine.accept(TopicDeleted("short", engine.now()))
    engine.sync()
    room.checkpoint()


def xid(name: str) -> Xid:
    return Xid(1, name.encode(), b"")


def backed_up(room: Room, backups: MemoryFilesystem, hold: EngineHold | None = None, **said) -> Made:
    return make_backup(room.inner, backups, hold or EngineHold(room.engine), clock(), **said)


def restored(backups: MemoryFilesystem, target: MemoryFilesystem | None = None, **said):
    """Restore the newest backup, or the one that is said; return the disk and what was told of it."""
    target = target if target is not None else MemoryFilesystem()
    told: RestoredDirectory = restore(backups, target, clock(), settings=SMALL, **said)
    return target, told


def held(room: Room) -> dict[str, object]:
    """What a reader sees, what is prepared with which frames, and what logs there are."""
    engine = room.engine
    found: dict[str, object] = {
        f"{store.topic}-{store.index}": (store.start_offset, room.values(number))
        for number, store in engine.catalog.stores.items()
    }
    for number in sorted(engine.transactions.prepared):
        frames = engine.transactions.table.preview(number, 1 << 30, engine.forced_lsn)
        found[f"prepared {engine.transactions.live[number].xid}"] = frames
    return found


def at_the_cut(room: Room) -> dict[str, object]:
    """What the next start would hold now, if the engine was killed."""
    after = room.killed()
    try:
        return held(after)
    finally:
        after.engine.close()


def prepared_of(room: Room) -> list[TransactionNumber]:
    return sorted(room.engine.transactions.prepared)
