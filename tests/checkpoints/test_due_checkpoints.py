"""Test when checkpoints are made of an engine that has nothing else to do: until all that was dropped is gone."""

from __future__ import annotations

import msgspec
import pytest

from journal.constants import MIB
from journal.records.record import TopicDeleted
from tests.support.engine_room import SMALL, Room, contents

MINUTE = 60_000_000
EACH_MINUTE = msgspec.structs.replace(
    SMALL, checkpoint_interval=MINUTE, checkpoint_bytes=64 * MIB, low_water_bytes=MIB
)


def room_with_a_deleted_topic() -> Room:
    """Its files are on the disk, and what is journaled last is that it goes."""
    room = Room(settings=EACH_MINUTE)
    room.topic("gone", 1)
    for number in range(20):
        room.send(b"%d" % number * 100)
    room.flush()
    room.engine.accept(TopicDeleted("gone", room.engine.now()))
    room.engine.sync()
    assert files_of_logs(room)
    return room


def files_of_logs(room: Room) -> list[str]:
    return [path for path in contents(room.inner) if path.startswith("partitions/")]


def go_on(room: Room) -> None:
    """Let the engine do all that it does at this time."""
    for _ in range(10):
        room.engine.housekeeping.run_inline()
        room.engine.sync()


def minutes_until_gone(room: Room) -> int:
    for minute in range(10):
        go_on(room)
        if not files_of_logs(room):
            return minute
        room.clock.advance(MINUTE)
    raise AssertionError(f"{files_of_logs(room)} are still there after {minute} minutes")


def test_what_was_dropped_goes_though_nothing_else_is_journaled():
    room = room_with_a_deleted_topic()
    assert minutes_until_gone(room) == 2, "with the second checkpoint"


def test_and_then_there_are_no_further_checkpoints():
    room = room_with_a_deleted_topic()
    minutes_until_gone(room)
    lsn = room.engine.last_lsn
    for _ in range(5):
        room.clock.advance(MINUTE)
        go_on(room)
    assert room.engine.last_lsn == lsn
    assert room.checkpoints()[-1] == lsn


def test_on_a_full_disk_it_goes_at_once():
    room = room_with_a_deleted_topic()
    room.plan.free_bytes = room.engine.housekeeping.reserve_bytes - 1
    assert minutes_until_gone(room) == 0


def test_but_not_where_the_checkpoint_might_find_no_room():
    room = room_with_a_deleted_topic()
    room.plan.free_bytes = EACH_MINUTE.file_bytes - 1
    assert minutes_until_gone(room) == 2


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_what_a_kill_left_goes_too(checkpoints: int):
    room = room_with_a_deleted_topic()
    for _ in range(checkpoints):
        room.checkpoint()
    room = room.killed()
    assert files_of_logs(room)
    assert minutes_until_gone(room) <= 2
