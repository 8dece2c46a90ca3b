"""Test append times: those of the records, the same after every crash, whatever the clocks of later starts say.

The expectation is what the test itself reads from the clock when it has a record made.
"""

from __future__ import annotations

from typing import Any

import pytest

from journal.check import Level, verify
from journal.constants import KIB
from journal.formats import frame
from journal.testing import ManualClock, MemoryFilesystem, PowerCut, cut_power_at
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.support.engine_room import Room, contents, decide

MINUTE = 60_000_000
WALL = 1_700_000_000_000_000
SENDS = 12
"""So many in a row are replayed as one run, a single one by itself."""


def room_of(inner: MemoryFilesystem | None = None, wall: int = WALL, cut_at: int = 0) -> Room:
    return Room(inner, clock=ManualClock(monotonic=5 * MINUTE, wall=wall), cut_at=cut_at)


def times(room: Room, number: int = 1) -> list[int]:
    store, found = room.store(number), []
    offset = store.start_offset
    while data := store.read(offset, 256 * KIB):
        messages = frame.decode_run(data, offset)
        found += [message.appended for message in messages]
        offset = messages[-1].offset + 1
    return found


def frames(room: Room) -> dict[int, bytes]:
    """All frames that readers can see, by partition."""
    found = {}
    for number, store in room.engine.catalog.stores.items():
        data, offset = b"", store.start_offset
        while offset < store.high_watermark:
            data += store.read(offset, 1 << 30)
            offset = frame.decode_run(data)[-1].offset + 1
        found[number] = data
    return found


def sound(room: Room) -> bool:
    return not [each for each in verify(room.inner, Level.DEEP) if not each.harmless]


class Work:
    """What is done in one start, minute by minute; ``expected`` are the append times by partition."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.expected: dict[int, list[int]] = {1: [], 2: []}

    def note(self, number: int, count: int = 1) -> None:
        self.expected[number] += [self.room.clock.wall()] * count
        self.room.clock.advance(MINUTE)

    def do(self) -> None:
        room = self.room
        room.send(b"a", b"b", b"c")
        self.note(1, 3)
        begun = room.begin((1, b"added before"))
        room.clock.advance(MINUTE)
        begun.carry((2, b"with the commit"), (1, b"and this")).commit().sync()
        self.expected[2].append(room.clock.wall())
        self.note(1, 2)
        room.begin((1, b"prepared"), (2, b"prepared")).prepare("x").sync()
        room.clock.advance(MINUTE)
        room.begin().carry((2, b"one request")).commit().sync()
        self.note(2)
        room.begin().carry((2, b"one request"), (1, b"for two logs")).commit().sync()
        self.expected[2].append(room.clock.wall())
        self.note(1)
        for number in range(SENDS):
            room.send(b"%d" % number)
            self.note(1)


def prepared_room() -> tuple[Room, Work]:
    room = room_of()
    room.topic()
    work = Work(room)
    work.do()
    return room, work


def test_messages_have_the_time_of_their_record_and_those_of_a_commit_the_same():
    room, work = prepared_room()
    assert {number: times(room, number) for number in (1, 2)} == work.expected
    assert sound(room)


def killed(room: Room) -> MemoryFilesystem:
    return room.inner.kill_clone()


def cut(room: Room) -> MemoryFilesystem:
    return room.inner.crash_clone(3)


def stopped(room: Room) -> MemoryFilesystem:
    room.engine.mark()
    room.engine.sync()
    room.engine.close()
    return room.inner


ENDS = {"killed": killed, "power cut": cut, "stopped": stopped}
LATER: dict[str, int] = {"later": 30 * MINUTE, "at once": 0, "earlier": -300 * MINUTE, "in 1970": 7 - WALL}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("end", ENDS)
def test_no_start_changes_the_time_of_what_there_was_whatever_its_own_clock_says(end, checkpoints, later):
    """What is replayed from the journal is stamped as it was; what is decided now has the present clock."""
    room, work = prepared_room()
    for _ in range(checkpoints):
        room.checkpoint()
    before = frames(room)
    wall = room.clock.wall() + LATER[later]
    again = room_of(ENDS[end](room), wall)
    assert frames(again) == before
    decide(again, "x", commit=True)
    expected = [again.clock.wall()]
    assert {number: times(again, number) for number in (1, 2)} == {
        number: known + expected for number, known in work.expected.items()
    }
    assert sound(again)
    for step in (again.flush, again.checkpoint):
        step()
        assert {number: times(again, number)[-1:] for number in (1, 2)} == {1: expected, 2: expected}
    last = room_of(killed(again), 5)
    assert {number: times(last, number) for number in (1, 2)} == {
        number: known + expected for number, known in work.expected.items()
    }
    assert sound(last)


def test_in_a_start_the_wall_clock_may_jump_and_times_grow_as_before():
    room = room_of()
    room.topic()
    for jump in (0, -10 * MINUTE, 100 * MINUTE, -WALL):
        room.clock.set_wall(room.clock.wall() + jump)
        room.send(b"x")
        room.clock.advance(MINUTE)
    assert times(room) == [WALL + number * MINUTE for number in range(4)]
    again = Room(room.inner.kill_clone(), clock=ManualClock(wall=99))
    again.send(b"after")
    assert times(again)[-2:] == [WALL + 3 * MINUTE, 99], "only a start asks the clock again"


def test_a_commit_in_slices_has_one_time_also_if_it_is_finished_by_replay():
    for is_killed in (False, True):
        room = room_of()
        room.topic()
        table = room.engine.transactions.table
        table.application.slice_bytes = table.application.small_bytes = 10
        begun = room.begin(*((number % 2 + 1, b"v" * 50) for number in range(40)))
        room.clock.advance(MINUTE)
        begun.commit()
        expected = room.clock.wall()
        assert room.engine.busy
        for _ in range(3):
            room.clock.advance(MINUTE)
            room.engine.continue_apply()
        group = room.engine.take()
        assert group is not None
        room.engine.write(group)
        if is_killed:
            room = room_of(killed(room), 5)
        else:
            room.engine.publish(group)
            room.engine.sync()
        assert times(room, 1) == times(room, 2) == [expected] * 20


@pytest.mark.slow
@pytest.mark.parametrize("wall", [WALL - 500 * MINUTE, WALL + 500 * MINUTE])
def test_wherever_the_power_goes_what_was_seen_has_its_time_and_the_files_agree(wall):
    """Over the work of two starts, and over each operation of the start after it."""
    for nth in range(1, 400):
        room = room_of()
        room.topic()
        seen: dict[int, bytes] = {1: b"", 2: b""}
        room.plan.on_operation = cut_power_at(nth)
        is_cut = False
        try:
            Work(room).do()
            room.checkpoint()
            seen = frames(room)
            decide(room, "x", commit=True)
            room.flush()
            room.checkpoint()
            seen = frames(room)
        except PowerCut:
            is_cut = True
        room.plan.on_operation = None
        for seed in (nth, nth + 1):
            after = room_of(room.inner.crash_clone(seed), wall)
            assert all(data.startswith(seen[number]) for number, data in frames(after).items())
            for number, known in times_by_record(after).items():
                assert times(after, number) == known
            assert sound(after)
        if not is_cut:
            break
    assert not is_cut


def times_by_record(room: Room) -> dict[int, list[int]]:
    """The append times by the journal alone, while it goes back to its first record."""
    wall_offset, found = 0, {number: list[int]() for number in room.engine.catalog.stores}
    for entry in walk_journal(room.inner):
        if not isinstance(entry, JournalEntry):
            continue
        record: Any = entry.record
        match type(record).__name__:
            case "Started":
                wall_offset = record.wall - record.at
            case "Messages":
                found[record.partition] += [record.at + wall_offset] * record.count
            case "TransactionCommitted":
                for placed in record.placements:
                    found[placed.partition] += [record.at + wall_offset] * placed.count
    return found


def test_a_start_that_dies_changes_no_time():
    room, _ = prepared_room()
    room.checkpoint()
    room.send(b"after the checkpoint")
    before = frames(room)
    for nth in range(1, 60):
        inner = room.inner.kill_clone()
        try:
            room_of(inner, 77, cut_at=nth)
        except PowerCut:
            again = room_of(inner.crash_clone(nth), 99)
            assert frames(again) == before
        else:
            break
    assert contents(inner)
