"""The scene of repairs: a directory with one of everything, what it held, and what a repair of it may lose."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from journal.engine.settings import JournalSettings
from journal.errors import CorruptSegment
from journal.formats import frame
from journal.repair import Diagnosis, diagnose, execute
from journal.testing import ManualClock, MemoryFilesystem
from tests.support.engine_room import SMALL, Room


@dataclass
class Held:
    """What a start of a directory can give: values by (topic, index), None where a read says that they are lost."""

    values: dict[tuple[str, int], list[bytes | None]] = field(default_factory=dict)
    prepared: set[object] = field(default_factory=set)


def scene(seed: int = 0) -> Room:
    """Sends and transactions in four partitions, some prepared long ago, over several starts, files and segments."""
    random = Random(seed)
    room = Room()
    room.topic("t", 2, segment_bytes=65_536)
    room.topic("u", 2)
    room.begin((1, b"in doubt 1"), (3, b"in doubt 2")).prepare("old")
    for step in range(5):
        for _ in range(8):
            number = random.randrange(1, 5)
            room.send(bytes([step]) * random.choice([10, 3000, 9000]), number=number)
            if random.random() < 0.4:
                room.begin((1, b"c%d" % step), (4, b"d%d" % step)).commit()
            if random.random() < 0.2:
                room.begin((2, b"rolled back")).rollback()
        if step in (1, 3):
            room.checkpoint()
        if step == 2:
            room.begin((2, b"newer doubt")).prepare("new")
            room = room.killed()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()  # the witness says all of it
    return room


def held(room: Room) -> Held:
    """All that can be read, offset by offset."""
    found = Held(prepared=room.prepared())
    for topic in room.engine.catalog.topics.values():
        for store in topic.partitions:
            values: list[bytes | None] = [None] * store.start_offset
            offset = store.start_offset
            while offset < store.high_watermark:
                try:
                    data = store.read(offset, 1 << 18)
                except CorruptSegment as error:
                    values += [None] * (error.first_offset - offset)
                    offset = error.first_offset
                    values += [None] * (error.last_offset + 1 - offset)
                    offset = error.last_offset + 1
                    continue
                values += [message.value for message in frame.decode_run(data, offset)]
                offset = len(values)
            found.values[topic.name, store.index] = values
    return found


def repaired(
    filesystem: MemoryFilesystem, settings: JournalSettings = SMALL, accept_unproven: bool = False
) -> Diagnosis:
    """Diagnose and carry out; the directory is ready for a start then."""
    lock = filesystem.lock("lock")
    diagnosis = diagnose(filesystem, accept_unproven=accept_unproven)
    if not diagnosis.is_sound:
        execute(filesystem, ManualClock(wall=1_600_000_000_000_000), lock, diagnosis, settings)
    lock.release()
    return diagnosis


def named(diagnosis: Diagnosis) -> tuple[dict[tuple[str, int], set[int]], bool]:
    """Offsets by partition that are said to be lost, and whether the journal was cut, so that ends may be lost."""
    offsets: dict[tuple[str, int], set[int]] = {}
    cut = False
    for loss in diagnosis.lost:
        what = loss.what
        cut = cut or what.first_lsn is not None
        if what.topic is not None and what.first_offset is not None and what.last_offset is not None:
            mine = offsets.setdefault((what.topic, what.partition or 0), set())
            mine.update(range(what.first_offset, what.last_offset + 1))
    return offsets, cut


def only_what_was_named_is_missing(before: Held, after: Held, diagnosis: Diagnosis) -> None:
    """Fails for a message that is another, or is missing and was not named."""
    offsets, cut = named(diagnosis)
    for partition, values in before.values.items():
        now = after.values.get(partition)
        assert now is not None or cut, f"{partition} is gone"
        now = now or []
        for offset, value in enumerate(values):
            if offset >= len(now):
                assert cut or offset in offsets.get(partition, ()), f"{partition} ends at {len(now)}, unnamed"
            elif now[offset] is None and value is not None:
                assert offset in offsets.get(partition, ()), f"{partition} offset {offset} is lost, unnamed"
            else:
                assert now[offset] == value, f"{partition} offset {offset} is another message"
        assert len(now) <= len(values), f"{partition} has messages that were never there"
    gone = {str(xid) for xid in before.prepared - after.prepared}
    told = {str(loss.what.xid) for loss in diagnosis.lost if loss.what.xid is not None}
    assert cut or gone <= told
    assert after.prepared <= before.prepared | ({*after.prepared} if cut else set())


def all_files(filesystem: MemoryFilesystem, directory: str = "") -> list[str]:
    """Every file below a directory."""
    found: list[str] = []
    for name in filesystem.list_directory(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found += all_files(filesystem, path)
        except NotADirectoryError:
            found.append(path)
    return found


def hurt(filesystem: MemoryFilesystem, random: Random) -> list[tuple[object, ...]]:
    """Damage one to three files, each as disks, people or programs do: a bit, an end, zeros, a file gone or swapped."""
    said: list[tuple[object, ...]] = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        there = [p for p in all_files(filesystem) if p not in ("lock", "ballast") and "spare" not in p]
        path = random.choice(there)
        file = filesystem.open(path)
        size = file.size()
        kind = random.choice(["flip", "truncate", "zero", "remove", "swap"])
        if kind == "flip" and size:
            position = random.randrange(size if random.random() < 0.5 else min(size, 9000))
            [byte] = file.read(position, 1)
            file.write_some(position, [bytes([byte ^ 1 << random.randrange(8)])])
            said.append((kind, path, position))
        elif kind == "truncate":
            length = random.randrange(size + 1)
            file.truncate(length)
            said.append((kind, path, length))
        elif kind == "zero" and size:
            position = random.randrange(size)
            length = min(size - position, random.choice([1, 100, 4096, 20_000]))
            file.write_some(position, [bytes(length)])
            said.append((kind, path, position, length))
        elif kind == "remove":
            filesystem.unlink(path)
            said.append((kind, path))
        elif kind == "swap":
            other = random.choice([p for p in there if p.rsplit(".", 1)[-1] == path.rsplit(".", 1)[-1]])
            if other != path:
                filesystem.rename(path, "away")
                filesystem.rename(other, path)
                filesystem.rename("away", other)
                said.append((kind, path, other))
    return said
