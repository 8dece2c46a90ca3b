"""Test what a repair loses of the schedule: it says so, and what is left goes on."""

from __future__ import annotations

import pytest

from journal.check.verification import Level, verify
from journal.formats.envelope import MINUTE, Clock
from journal.records.record import TopicDeleted, WallClockTold
from journal.scheduled_id import State
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause
from journal.transactions.unsent import Unsent
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.repair.repair_scene import repaired
from tests.schedule.schedule_scene import SECOND, ScheduleRoom, room_after
from tests.support.engine_room import damage, decide, xid_of

HOUR = 60 * MINUTE


@pytest.fixture
def room() -> ScheduleRoom:
    found = ScheduleRoom()
    found.topic()
    return found


def cut_before_last(room: ScheduleRoom) -> MemoryFilesystem:
    """Damage the record before the last one."""
    filesystem = room.inner.kill_clone()
    damaged = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)][-2]
    damage(filesystem, damaged.path, damaged.position + 20)
    return filesystem


def test_messages_whose_placing_is_lost_come_again(room: ScheduleRoom) -> None:
    room.later(b"a", SECOND)
    room.engine.sync()
    room.run()
    room.send(b"is damaged")
    room.clock.advance(SECOND)
    room.run()
    filesystem = cut_before_last(room)
    told = [loss.text for loss in repaired(filesystem).lost]
    assert "that 1 scheduled message had gone to their partitions: they may be there, and come again" in told
    again = room_after(filesystem, room.clock)
    again.run()
    assert again.values() == [b"a"]


@pytest.mark.parametrize("how", ["cancel", "transaction"])
def test_messages_that_were_taken_back_behind_the_cut_come(room: ScheduleRoom, how: str) -> None:
    one = room.later(b"a", SECOND)
    room.engine.sync()
    room.run()
    room.send(b"is damaged")
    if how == "cancel":
        assert [each.state for each in room.cancel(one)] == [State.CANCELLED]
    else:
        unsent = Unsent(taken_back=[(one.number, 1)])
        room.engine.transactions.commit(room.begin().number, Cause.CLIENT, unsent=unsent)
        room.engine.sync()
    filesystem = cut_before_last(room)
    told = [loss.text for loss in repaired(filesystem).lost]
    assert "that 1 scheduled message had been taken back: they come" in told
    again = room_after(filesystem, room.clock)
    again.clock.advance(SECOND)
    again.run()
    assert again.values() == [b"a"]


def test_jumps_of_the_wall_clock_behind_the_cut_are_named(room: ScheduleRoom) -> None:
    room.send(b"is damaged")
    room.engine.accept(WallClockTold(room.clock.wall(), room.engine.now(), holds=True))
    room.engine.sync()
    told = [loss.text for loss in repaired(cut_before_last(room)).lost]
    assert any(text.startswith("jumps of the wall clock") for text in told)


@pytest.mark.parametrize("was_seen", [True, False])
def test_a_message_that_is_damaged_is_over_after_a_repair_and_the_others_come(
    room: ScheduleRoom, was_seen: bool
) -> None:
    room.topic("u", 1)
    for number in range(5):
        room.later(b"%d" % number * 40, SECOND * (number + 1), Clock.ELAPSED, 3 if number == 2 else 1)
    room.engine.sync()
    if was_seen:
        room.run()
    room.flush()
    room.checkpoint()
    room.checkpoint()
    filesystem = room.inner.kill_clone()
    store = room.schedule.stores[0]
    [segment] = store.segments
    path = segment.path
    data = filesystem.open(path).read(0, segment.size)
    damage(filesystem, path, data.index(b"2222") + 3)
    records = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)]
    for entry in records:
        if b"2222" in bytes(entry.data):
            damage(filesystem, entry.path, entry.position + 20)
    repaired(filesystem)
    again = room_after(filesystem, room.clock)
    again.clock.advance(10 * SECOND)
    again.run()
    assert again.values() == [b"%d" % number * 40 for number in (0, 1, 3, 4)]
    assert (again.schedule.waiting(), again.schedule.gone) == (0, 1)
    assert again.engine.schedule.targets == {}
    later = again.later(b"more", SECOND)
    again.engine.sync()
    again.clock.advance(SECOND)
    again.run()
    assert again.values()[-1] == b"more"
    assert again.look_up(later)[0].state is State.SENT
    again.checkpoint()
    again.engine.close()
    assert [str(each) for each in verify(filesystem, Level.DEEP) if not each.harmless] == []


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("seen", [True, False])
def test_a_message_that_is_lost_while_a_transaction_holds_it_is_over_with_its_outcome(
    room: ScheduleRoom, seen: bool, commits: bool
) -> None:
    """Seen to fail: the broker ended, and could not be started again."""
    ids = [room.later(b"%d" % number * 40, SECOND * (number + 1)) for number in range(5)]
    room.engine.sync()
    if seen:
        room.run()
    begun = room.begin()
    unsent = Unsent(taken_back=[(ids[2].number, 1)])
    room.engine.transactions.prepare(begun.number, xid_of("x"), unsent=unsent)
    room.engine.sync()
    room.flush()
    room.checkpoint()
    room.checkpoint()
    disk = room.inner.kill_clone()
    [segment] = room.schedule.stores[0].segments
    damage(disk, segment.path, disk.open(segment.path).read(0, segment.size).index(b"2222") + 3)
    for each in [each for each in walk_journal(disk) if isinstance(each, JournalEntry)]:
        if b"2222" in bytes(each.data):
            damage(disk, each.path, each.position + 20)
    assert [loss.text for loss in repaired(disk).lost] == ["txbroker.schedule-0: offset 2 (1 message)"]
    again = room_after(disk, room.clock)
    again.clock.advance(10 * SECOND)
    again.run()
    others = [b"%d" % number * 40 for number in (0, 1, 3, 4)]
    assert again.values() == others
    assert again.schedule.waiting() == 1
    again = room_after(again.inner.kill_clone(), again.clock)
    decide(again, "x", commit=commits)
    again.clock.advance(2 * SECOND)
    again.run()
    assert (again.schedule.waiting(), again.values()) == (0, others)
    again.checkpoint()
    again.engine.close()
    assert [str(each) for each in verify(again.inner, Level.DEEP) if not each.harmless] == []


class TestDamageBeforeItWasSeen:
    """A message is damaged before the schedule has put it into the timetable."""

    @pytest.fixture
    def disk(self, room: ScheduleRoom) -> MemoryFilesystem:
        for number in range(3):
            room.later(b"%d" % number * 40, SECOND * (number + 1))
            room.engine.sync()
            room.flush()
        room.checkpoint()
        room.checkpoint()
        return room.inner.kill_clone()

    def damaged_at(self, room: ScheduleRoom, disk: MemoryFilesystem, mark: bytes) -> tuple[str, int]:
        [segment] = room.schedule.stores[0].segments
        return segment.path, disk.open(segment.path).read(0, segment.size).index(mark) + 3

    def test_the_others_come_also_those_sent_afterwards_and_over_restarts(
        self, room: ScheduleRoom, disk: MemoryFilesystem
    ) -> None:
        """Seen to fail: nothing of that log came any more, and the log was told at each send."""
        damage(disk, *self.damaged_at(room, disk, b"1111"))
        again, told = room_after(disk, room.clock), list[int]()
        again.schedule.on_damage = lambda number, _: told.append(number)
        again.run()
        for number in range(5):
            again.later(b"new%d" % number, SECOND * (number + 20))
            again.engine.sync()
            again.run()
        assert len(told) == 1
        for _ in range(3):
            again.clock.advance(8 * SECOND)
            again.run()
            again.flush()
            again.checkpoint()
            again = room_after(again.inner.kill_clone(), again.clock)
        again.run()
        assert again.schedule.waiting() == 1
        assert again.engine.schedule.targets == {}
        came = [b"0" * 40, b"2" * 40, *(b"new%d" % number for number in range(5))]
        assert sorted(again.values()) == sorted(came)
        again.checkpoint()
        findings = [each for each in verify(again.inner.kill_clone(), Level.FULL) if not each.harmless]
        assert [each.path.partition("/")[0] for each in findings] == ["partitions"], findings

    def test_what_is_for_a_deleted_topic_is_dropped_around_it(
        self, room: ScheduleRoom, disk: MemoryFilesystem
    ) -> None:
        again = room_after(disk, room.clock)
        again.run()
        damage(again.inner, *self.damaged_at(room, disk, b"1111"))
        again.engine.accept(TopicDeleted("t", again.engine.now()))
        again.engine.sync()
        again.run()
        assert again.schedule.waiting() == 1
        again.clock.advance(10 * SECOND)
        again.run()
        assert again.schedule.waiting() == 1, "it is looked at again until a repair gives it up"

    def test_it_comes_once_when_it_can_be_read_again(
        self, room: ScheduleRoom, disk: MemoryFilesystem
    ) -> None:
        path, at = self.damaged_at(room, disk, b"1111")
        damage(disk, path, at)
        again = room_after(disk, room.clock)
        again.run()
        again.later(b"new", 2 * HOUR)
        again.engine.sync()
        again.run()
        again.clock.advance(10 * SECOND)
        again.run()
        assert again.values() == [b"0" * 40, b"2" * 40]
        assert again.schedule.bound_for({1}) is None, "it may be for that partition"
        damage(again.inner, path, at)  # which turns the byte back
        again.clock.advance(MINUTE)
        again.run()
        assert again.values() == [b"0" * 40, b"2" * 40, b"1" * 40]
        assert (again.engine.schedule.targets, again.schedule.bound_for({1})) == ({1: 1}, 1)
        assert all(not log.beyond for log in again.engine.schedule.logs)
        again.clock.advance(3 * HOUR)
        again.run()
        assert again.values()[3:] == [b"new"]
