"""Test that the schedule in a checkpoint is compared with its logs: what waits is in the timetable, at its time."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from journal.check import Level, verify
from journal.folds.schedule import LogRow, TimesRow
from journal.folds.timetable import ENTRY_BITS
from journal.formats.checkpoint import Checkpoint, write_checkpoint
from journal.formats.envelope import Clock, Envelope, id_of
from journal.formats.filenames import checkpoint_file
from journal.schedule.placing import Batch
from journal.testing import MemoryFilesystem
from journal.walks.checkpoint_walk import checkpoints
from tests.schedule.schedule_scene import SECOND, ScheduleRoom

Rows = list[Any]


@pytest.fixture
def disk() -> MemoryFilesystem:
    """Two checkpoints; four messages wait, two of them in the segment, one was placed, and one was taken back."""
    room = ScheduleRoom()
    room.topic()
    room.checkpoint()
    kept = [room.later(b"%d" % number, (5 + number) * SECOND + SECOND // 2) for number in range(3)]
    room.later(b"wall", 30 * SECOND, Clock.WALL)
    room.later(b"due", 0)
    room.engine.sync()
    room.run()
    room.flush()
    room.later(b"in the journal", 40 * SECOND)
    room.engine.sync()
    room.cancel(kept[1])
    room.run()
    room.checkpoint()
    return room.inner.kill_clone()


def found(disk: MemoryFilesystem, change: Callable[[Rows], Rows], level: Level = Level.FULL) -> str:
    *_, old = [each for each in checkpoints(disk) if isinstance(each, Checkpoint)]
    folds: dict[str, Any] = dict(old.folds)
    folds["schedule"] = change(list(folds["schedule"]))
    disk.unlink(checkpoint_file(old.header.lsn))
    write_checkpoint(disk, old.header, {each: iter(rows) for each, rows in folds.items()}, old.stores)
    return "\n".join(str(each) for each in verify(disk, level) if not each.harmless)


def entries(rows: Rows) -> Rows:
    return [each for each in rows if isinstance(each, TimesRow)]


def with_entries(rows: Rows, change: Callable[[Clock, int, list[int]], list[int]]) -> Rows:
    others = [each for each in rows if not isinstance(each, TimesRow)]
    for row in entries(rows):
        numbers = array("Q")
        numbers.frombytes(row.items)
        changed = change(row.clock, row.start, list(numbers))
        if changed:
            others.append(replace(row, items=array("Q", changed).tobytes()))
    return others


def of(number: int) -> int:
    return number & ((1 << ENTRY_BITS) - 1)


@pytest.mark.parametrize("level", Level)
def test_a_sound_directory_has_nothing_to_tell(disk: MemoryFilesystem, level: Level) -> None:
    assert found(disk, lambda rows: rows, level) == ""


def test_a_message_that_is_not_in_the_timetable_is_told(disk: MemoryFilesystem) -> None:
    def leave_out(clock: Clock, hour: int, numbers: list[int]) -> list[int]:
        return [each for each in numbers if of(each) != id_of(0, 0)]

    told = found(disk, lambda rows: with_entries(rows, leave_out), Level.QUICK)
    assert (
        "the message at offset 0 of log 0 of the schedule: it waits, and is 0 times in the timetable" in told
    )


def test_one_that_is_there_twice_is_told(disk: MemoryFilesystem) -> None:
    told = found(
        disk,
        lambda rows: with_entries(rows, lambda clock, hour, numbers: [*numbers, numbers[0]]),
        Level.QUICK,
    )
    assert "is 2 times in the timetable" in told


def test_one_that_has_not_been_seen_is_told(disk: MemoryFilesystem) -> None:
    told = found(
        disk,
        lambda rows: with_entries(rows, lambda clock, hour, numbers: [*numbers, id_of(0, 77)]),
        Level.QUICK,
    )
    assert "offset 77 of log 0 of the schedule: it is in the timetable, and behind what has been seen" in told


@pytest.mark.parametrize("later", [1, -1])
def test_one_that_is_there_at_another_time_is_told(disk: MemoryFilesystem, later: int) -> None:
    def move(clock: Clock, hour: int, numbers: list[int]) -> list[int]:
        return [each + (later << ENTRY_BITS) if of(each) == id_of(0, 2) else each for each in numbers]

    told = found(disk, lambda rows: with_entries(rows, move))
    assert "offset 2 of log 0 of the schedule: it is due at" in told


def test_one_that_is_there_by_the_other_clock_is_told(disk: MemoryFilesystem) -> None:
    def other(rows: Rows) -> Rows:
        return [
            replace(each, clock=Clock(3 - each.clock)) if isinstance(each, TimesRow) else each
            for each in rows
        ]

    assert "by clock WALL" in found(disk, other)


def test_counts_of_partitions_that_are_wrong_are_told(disk: MemoryFilesystem) -> None:
    def count(said: list[tuple[int, int]]) -> Callable[[Rows], Rows]:
        return lambda rows: [
            said if isinstance(each, list) and each and type(each[0]) is tuple else each for each in rows
        ]

    assert "3 scheduled messages are counted by their partitions, 4 wait" in found(disk, count([(1, 3)]))
    told = found(disk, count([(1, 1), (7, 3)]))
    assert "scheduled messages are counted for partition number 1" in told


def test_a_log_that_begins_past_what_waits_or_knows_more_than_it_has_is_told(disk: MemoryFilesystem) -> None:
    def beyond(rows: Rows) -> Rows:
        [first, *_] = [each for each in rows if isinstance(each, LogRow)]
        return [replace(each, seen=1000) if each is first else each for each in rows]

    assert "it knows messages up to 1000, the log ends at 6" in found(disk, beyond, Level.QUICK)


def test_a_frame_that_is_not_that_of_its_envelope_is_told_with_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add, first = Batch.add, list[memoryview]()

    def add_the_first_again(batch: Batch, number: int, envelope: Envelope) -> bool:
        first.append(envelope.frame)
        return add(batch, number, envelope._replace(frame=first[0]))

    monkeypatch.setattr(Batch, "add", add_the_first_again)
    room = ScheduleRoom()
    room.topic()
    for value in (b"one", b"two"):
        room.later(value, 0)
    room.engine.sync()
    room.run()
    room.flush()
    room.checkpoint()
    disk = room.inner.kill_clone()
    told = [str(each) for each in verify(disk) if not each.harmless]
    assert len(told) == 1, told
    assert "what was placed at offset 1 of partition number 1 (checksum" in told[0]
    assert "is not the message at offset 1 of log 0 of the schedule" in told[0]
    assert [each for each in verify(disk, Level.QUICK) if not each.harmless] == []
