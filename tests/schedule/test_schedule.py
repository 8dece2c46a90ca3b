"""Tests of the schedule: what is due goes to its partition, once, in the order of its times, and not before."""

from __future__ import annotations

import pytest

from journal.errors import (
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    MessageTooLarge,
    NotScheduled,
    ScheduleHeld,
    UnknownPartition,
)
from journal.formats import frame
from journal.formats.envelope import DAY, HORIZONS, MINUTE, SCHEDULE_TOPIC, Clock, key_of, log_for, seal
from journal.formats.frame import HEADER_BYTES
from journal.records.record import TopicAltered, TopicDeleted
from journal.schedule import schedule
from journal.schedule.cancelling import Place
from journal.schedule.judging import Judge
from journal.schedule.schedule import HOLD, LOOKED_AT
from journal.scheduled_id import ScheduledId, State
from journal.settings import TopicSettings
from journal.testing import Fault, Operation
from journal.transaction_states import Cause, TransactionNumber
from journal.transactions.unsent import Unsent
from tests.schedule.schedule_scene import SECOND, ScheduleRoom, carry_out, room_after
from tests.support.engine_room import decide, run_of, xid_of

HOUR = 60 * MINUTE


@pytest.fixture
def room() -> ScheduleRoom:
    found = ScheduleRoom()
    found.topic()
    return found


def values_after(room: ScheduleRoom, passed: int, number: int = 1) -> list[bytes]:
    room.clock.advance(passed)
    room.run()
    return room.values(number)


def test_a_message_comes_when_it_is_due_and_not_before(room: ScheduleRoom) -> None:
    room.later(b"a", 2 * SECOND)
    room.engine.sync()
    assert values_after(room, 0) == []
    assert values_after(room, 2 * SECOND - 1000) == []
    assert values_after(room, 1000) == [b"a"]
    assert values_after(room, HOUR) == [b"a"]


def test_they_come_in_the_order_of_their_times(room: ScheduleRoom) -> None:
    for number in (5, 1, 4, 2, 3):
        room.later(b"%d" % number, number * SECOND // 10)
        room.later(b"d%d" % number, number * DAY)
    room.engine.sync()
    assert values_after(room, SECOND) == [b"1", b"2", b"3", b"4", b"5"]
    assert values_after(room, 10 * DAY)[5:] == [b"d1", b"d2", b"d3", b"d4", b"d5"]


def test_the_value_is_the_frame_that_was_given_with_its_new_place(room: ScheduleRoom) -> None:
    room.send(b"before")
    sealed = seal(
        frame.encode(b"v", 77, b"k", {"h": b"x"}), 1, Clock.ELAPSED, room.schedule.now(Clock.ELAPSED)
    )
    room.engine.append(room.schedule.make()[0], sealed, 1)
    room.engine.sync()
    room.clock.advance(SECOND)
    room.run()
    [found] = frame.decode_run(room.store().read(1, 1000), 1)
    assert (found.value, found.key, found.headers, found.timestamp) == (b"v", b"k", (("h", b"x"),), 77)
    assert found.appended == room.clock.wall()


@pytest.mark.parametrize("clock", Clock)
def test_what_fell_due_while_stopped_goes_out_at_the_start(room: ScheduleRoom, clock: Clock) -> None:
    room.later(b"a", 2 * HOUR, clock)
    room.engine.sync()
    room.clock.advance(3 * HOUR)
    again = room_after(room.inner.kill_clone(), room.clock)
    again.run()
    assert again.values() == [b"a"]


def test_what_is_due_while_its_file_cannot_be_opened_comes_once_it_can(room: ScheduleRoom) -> None:
    room.later(b"a", SECOND)
    room.engine.sync()
    room.run()
    room.flush()
    room.checkpoint()  # with the timetable: the next start need not read the message
    again = room_after(room.inner.kill_clone(), room.clock)
    again.clock.advance(SECOND)
    again.plan.faults.append(Fault(Operation.OPEN, path="partitions/*"))
    with pytest.raises(OSError, match="planned"):
        again.run()
    again.run()
    assert again.values() == [b"a"]


def test_time_that_passed_while_stopped_counts_but_no_jump_back(room: ScheduleRoom) -> None:
    room.later(b"a", 10 * SECOND)
    room.engine.sync()
    room.clock.advance(4 * SECOND)
    room.engine.mark()
    room.engine.sync()
    room.clock.set_wall(room.clock.wall() - HOUR)  # while it is stopped
    again = room_after(room.inner.kill_clone(), room.clock)
    again.run()
    assert values_after(again, 5 * SECOND) == []
    assert values_after(again, 1 * SECOND) == [b"a"]


def test_a_jump_of_the_wall_clock_while_running_is_not_time_that_passed(room: ScheduleRoom) -> None:
    room.later(b"a", HOUR)
    room.engine.sync()
    room.clock.set_wall(room.clock.wall() + 30 * MINUTE)
    room.run()  # tells the journal
    again = room_after(room.inner.kill_clone(), room.clock)
    assert values_after(again, 40 * MINUTE) == []
    assert values_after(again, 20 * MINUTE) == [b"a"]


def test_after_a_long_jump_forward_what_is_due_by_the_wall_clock_is_held(room: ScheduleRoom) -> None:
    room.later(b"wall", 30 * MINUTE, Clock.WALL)
    room.later(b"elapsed", 30 * MINUTE)
    room.engine.sync()
    room.clock.set_wall(room.clock.wall() + HOLD + SECOND * 2)
    room.run()
    assert room.engine.schedule.holds
    assert values_after(room, 30 * MINUTE) == [b"elapsed"]
    again = room_after(room.inner.kill_clone(), room.clock)
    again.run()
    assert again.values() == [b"elapsed"], "a start does not let them go"
    again.schedule.release(None)
    again.run()
    assert again.values() == [b"elapsed", b"wall"]


def test_a_short_jump_holds_nothing(room: ScheduleRoom) -> None:
    room.later(b"wall", 30 * MINUTE, Clock.WALL)
    room.engine.sync()
    room.clock.set_wall(room.clock.wall() + 31 * MINUTE)
    room.run()
    assert room.values() == [b"wall"]


def test_a_transactions_messages_count_from_their_sends_and_wait_for_its_outcome(room: ScheduleRoom) -> None:
    room.begin_later((b"a", SECOND), (b"b", HOUR)).prepare("x").sync()
    assert values_after(room, 2 * SECOND) == []
    again = room_after(room.inner.kill_clone(), room.clock)
    again.run()
    assert again.values() == []
    decide(again, "x", commit=True)
    again.run()
    assert again.values() == [b"a"]
    assert values_after(again, HOUR) == [b"a", b"b"]


def test_a_rolled_back_transactions_messages_never_come(room: ScheduleRoom) -> None:
    room.begin_later((b"a", SECOND)).prepare("x").sync()
    decide(room, "x", commit=False)
    assert values_after(room, DAY) == []
    assert room.schedule.waiting() == 0


def test_one_is_taken_back_once_and_told_so_again(room: ScheduleRoom) -> None:
    one, other = room.later(b"a", SECOND), room.later(b"b", SECOND)
    room.engine.sync()
    assert [found.state for found in room.cancel(one)] == [State.CANCELLED]
    assert [found.state for found in room.cancel(one, one)] == [State.CANCELLED] * 2
    assert values_after(room, HOUR) == [b"b"]
    [sent] = room.cancel(other)
    assert (sent.state, sent.place) == (State.SENT, Place(1, 0))
    again = room_after(room.inner.kill_clone(), room.clock)
    assert [found.state for found in again.cancel(one, other)] == [State.CANCELLED, State.SENT]
    assert again.look_up(other)[0].place == Place(1, 0)


def test_an_id_of_another_message_at_the_same_place_takes_nothing_back(room: ScheduleRoom) -> None:
    one = room.later(b"a", SECOND)
    room.engine.sync()
    strangers = one._replace(checksum=one.checksum ^ 1), one._replace(offset=7), one._replace(log=3)
    assert [found.state for found in room.cancel(*strangers)] == [State.UNKNOWN] * 3
    assert values_after(room, SECOND) == [b"a"]


def test_what_is_over_for_a_day_is_unknown(room: ScheduleRoom) -> None:
    one = room.later(b"a", SECOND)
    room.engine.sync()
    room.clock.advance(SECOND)
    room.run()
    room.clock.advance(23 * HOUR)
    room.later(b"b", 0)
    room.engine.sync()
    room.run()
    assert room.look_up(one)[0].state is State.SENT
    room.clock.advance(3 * HOUR)
    room.later(b"c", 0)
    room.engine.sync()
    room.run()
    assert room.look_up(one)[0].state is State.UNKNOWN


def taking_back(*ids: ScheduledId) -> Unsent:
    return Unsent(taken_back=[(each.number, 1) for each in ids])


def test_a_prepared_transaction_holds_what_it_takes_back(room: ScheduleRoom) -> None:
    one, other = room.later(b"a", SECOND), room.later(b"b", SECOND)
    room.engine.sync()
    begun = room.begin()
    begun.unsent = taking_back(one)
    room.engine.transactions.prepare(begun.number, xid_of("x"), None, unsent=begun.unsent)
    room.engine.sync()
    assert [found.state for found in room.cancel(one)] == [State.HELD]
    second = room.begin()
    with pytest.raises(ScheduleHeld, match="x"):
        room.engine.transactions.prepare(second.number, xid_of("y"), None, unsent=taking_back(one))
    assert values_after(room, HOUR) == [b"b"], "it waits for the outcome"
    again = room_after(room.inner.kill_clone(), room.clock)
    assert values_after(again, HOUR) == [b"b"]
    decide(again, "x", commit=False)
    assert values_after(again, 2 * SECOND) == [b"b", b"a"]
    assert [found.state for found in again.cancel(one, other)] == [State.SENT] * 2


def test_a_committed_one_takes_back_what_it_held(room: ScheduleRoom) -> None:
    one = room.later(b"a", SECOND)
    room.engine.sync()
    begun = room.begin()
    room.engine.transactions.prepare(begun.number, xid_of("x"), None, unsent=taking_back(one))
    room.engine.sync()
    decide(room, "x", commit=True)
    assert values_after(room, HOUR) == []
    assert room.look_up(one)[0].state is State.CANCELLED


@pytest.mark.parametrize("what", ["twice", "sent", "beyond", "cancelled"])
def test_a_transaction_takes_back_only_what_waits(room: ScheduleRoom, what: str) -> None:
    one = room.later(b"a", SECOND)
    room.engine.sync()
    ids = {"twice": (one, one), "beyond": (one._replace(offset=1),)}.get(what, (one,))
    if what == "sent":
        assert values_after(room, SECOND) == [b"a"]
    if what == "cancelled":
        room.cancel(one)
    begun = room.begin()
    for ended in (
        lambda: room.engine.transactions.prepare(begun.number, xid_of("x"), None, unsent=taking_back(*ids)),
        lambda: commit(room, begun.number, taking_back(*ids)),
    ):
        with pytest.raises(NotScheduled):
            ended()
    assert not room.engine.failed


def test_a_topic_that_is_gone_gets_nothing_and_its_messages_are_over(room: ScheduleRoom) -> None:
    room.topic("u", 1)
    room.later(b"a", SECOND, number=3)
    room.later(b"b", SECOND, number=1)
    room.engine.sync()
    room.run()
    assert room.engine.schedule.targets == {3: 1, 1: 1}
    room.engine.accept(TopicDeleted("u", room.engine.now()))
    room.engine.sync()
    assert values_after(room, SECOND) == [b"b"]
    assert room.schedule.gone == 1
    assert room.schedule.waiting() == 0
    assert room.engine.schedule.targets == {}


def test_a_checkpoint_keeps_what_waits(room: ScheduleRoom) -> None:
    for number in range(1, 40):
        room.later(b"%d" % number, number * MINUTE, Clock.WALL if number % 2 else Clock.ELAPSED)
    room.engine.sync()
    room.clock.advance(5 * MINUTE)
    room.run()
    room.later(b"unseen", 41 * MINUTE)
    room.engine.sync()
    room.checkpoint()
    room.checkpoint()
    again = room_after(room.inner.kill_clone(), room.clock)
    assert again.engine.schedule.targets == {1: 34}
    again.run()
    assert again.engine.schedule.targets == {1: 35}
    found = values_after(again, HOUR)
    assert sorted(found) == sorted([b"%d" % number for number in range(1, 40)] + [b"unseen"])


def test_the_logs_begin_behind_what_has_been_over_for_a_day() -> None:
    room = ScheduleRoom()
    room.topic()
    room.schedule.make()
    store = room.schedule.stores[log_for(0)]
    settings = TopicSettings(segment_bytes=64 << 10, force_messages=1)
    room.engine.accept(TopicAltered(SCHEDULE_TOPIC, settings, room.engine.now()))
    for _ in range(40):
        room.later(b"x" * 8000, 0)
        room.engine.sync()
        room.run()
        room.flush()
    assert len(store.segments) > 2
    assert room.schedule.retain() == 0
    room.clock.advance(25 * HOUR)
    room.later(b"y", 0)
    room.engine.sync()
    room.run()
    kept = room.later(b"waits", SECOND)
    room.engine.sync()
    assert room.schedule.retain() == 1
    room.engine.sync()
    assert store.start_offset == 40
    room.checkpoint()
    again = room_after(room.inner.kill_clone(), room.clock)
    assert again.look_up(kept)[0].state is State.WAITS
    again.clock.advance(SECOND)
    again.run()
    assert again.values()[-1] == b"waits"


def test_what_was_taken_back_goes_from_the_timetable_if_it_is_much(
    room: ScheduleRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.schedule.schedule.FEW", 10)
    ids = [room.later(b"%d" % number, DAY, Clock(1 + number % 2)) for number in range(90)]
    room.engine.sync()
    room.run()
    room.cancel(*ids[10:])
    room.run()
    assert sum(map(len, room.engine.schedule.timetables.values())) == 10
    assert sorted(values_after(room, 2 * DAY)) == sorted(b"%d" % number for number in range(10))


def sealed_of(value: bytes = b"v", partition: int = 1, due: int = 1, clock: Clock = Clock.ELAPSED) -> bytes:
    return seal(frame.encode(value, 1), partition, clock, due)


def test_what_cannot_be_placed_is_refused_when_it_is_sent(room: ScheduleRoom) -> None:
    judge, stores = Judge(room.schedule), room.schedule.make()
    now = room.schedule.now(Clock.ELAPSED)
    assert judge.check(stores[0], sealed_of(due=now)) == 1
    with pytest.raises(UnknownPartition):
        judge.check(stores[0], sealed_of(partition=99))
    with pytest.raises(UnknownPartition):
        judge.check(stores[0], sealed_of(partition=stores[0].number))
    with pytest.raises(InvalidSetting, match="clock"):
        judge.check(stores[0], sealed_of(due=now + HORIZONS[0] + 2 * HOUR))
    with pytest.raises(InvalidSetting):
        judge.check(stores[0], sealed_of(due=-5))
    with pytest.raises(InvalidFrame, match="clock 9"):
        judge.check(stores[0], frame.encode(b"", 1, key_of(1, Clock.WALL)[:-1] + b"\x09"))
    with pytest.raises(InvalidFrame, match="which partition"):
        judge.check(stores[0], run_of(b"a"))
    broken = bytearray(frame.encode(b"value", 1))
    broken[-1] ^= 1
    with pytest.raises(InvalidFrame):
        judge.check(stores[0], seal(broken, 1, Clock.ELAPSED, now))
    with pytest.raises(InvalidFrame, match="alone"):
        judge.check(stores[0], seal(run_of(b"a", b"b"), 1, Clock.ELAPSED, now))
    with pytest.raises(MessageTooLarge, match="t-0"):
        judge.check(stores[0], sealed_of(b"x" * 100, due=now), lambda _: HEADER_BYTES + 50)


def test_no_more_messages_or_bytes_wait_than_allowed(room: ScheduleRoom) -> None:
    room.later(b"a", HOUR)
    room.engine.sync()
    stores, now = room.schedule.make(), room.schedule.now(Clock.ELAPSED)
    with pytest.raises(LimitExceeded, match="limit is 1;"):
        Judge(room.schedule, most=1).check(stores[0], sealed_of(due=now))
    with pytest.raises(LimitExceeded, match="max_scheduled_bytes"):
        Judge(room.schedule, most_bytes=100).check(stores[0], sealed_of(due=now))


def test_while_the_disk_is_full_nothing_is_placed_and_nothing_lost(room: ScheduleRoom) -> None:
    room.later(b"a", SECOND)
    room.engine.sync()
    room.engine.full_at = -1
    assert values_after(room, HOUR) == []
    room.engine.full_at = 1 << 62
    room.run()
    assert room.values() == [b"a"]


def test_when_memory_is_short_nothing_is_lost(room: ScheduleRoom) -> None:
    for number in range(4):
        room.later(b"%d" % number * 60_000, SECOND)
        room.engine.sync()
        room.flush()
    room.clock.advance(SECOND)
    held = []
    while True:
        try:
            held.append(room.engine.allocator.allocate(4096))
        except Exception:  # noqa: BLE001  (whatever says that there is no more)
            break
    carry_out(room.schedule.run())
    assert room.values() == []
    for buffer in held:
        buffer.release()
    room.run()
    assert [value[:1] for value in room.values()] == [b"0", b"1", b"2", b"3"]


def test_what_is_due_is_read_from_the_disk(room: ScheduleRoom) -> None:
    for number in range(50):
        room.later(b"%02d" % number, SECOND + number * 1000)
    room.engine.sync()
    room.flush()
    room.checkpoint()
    again = room_after(room.inner.kill_clone(), room.clock)
    assert values_after(again, 2 * SECOND) == [b"%02d" % number for number in range(50)]


def test_one_is_read_though_much_that_is_due_soon_lies_before_it(
    room: ScheduleRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "READ_BYTES", 200)
    monkeypatch.setattr(schedule, "FETCHED_BYTES", 100)
    for number in range(9):
        room.later(b"%d" % number + b"v" * 100, SECOND * 10 - number * 1000)
    room.engine.sync()
    room.flush()
    room.checkpoint()
    again = room_after(room.inner.kill_clone(), room.clock)
    found = values_after(again, 20 * SECOND)
    assert [value[:1] for value in found] == [b"%d" % number for number in range(8, -1, -1)]


def test_nothing_is_placed_beside_a_large_commit_that_begins_while_it_is_laid_out(room: ScheduleRoom) -> None:
    begun = room.begin().add(*[(1, b"%d" % number) for number in range(8)]).prepare("x").sync()
    room.later(b"a", 10 * SECOND)
    room.engine.sync()
    room.clock.advance(20 * SECOND)
    steps = room.schedule.run()
    while not room.engine.schedule.logs[0].seen:
        assert next(steps) is None
    assert next(steps) is None, "it is being laid out"
    table = room.engine.transactions.table
    table.application.small_bytes, table.application.slice_bytes = 0, 1
    room.engine.transactions.commit(begun.number, Cause.CLIENT)
    assert room.engine.busy
    carry_out(steps)
    assert room.engine.schedule.waits(0), "it waits for its turn"
    room.engine.sync()
    assert not room.engine.busy
    room.run()
    assert room.values()[-1] == b"a"


def commit(room: ScheduleRoom, number: TransactionNumber, unsent: Unsent) -> None:
    room.engine.transactions.commit(number, Cause.CLIENT, unsent=unsent)


def test_what_was_taken_back_or_is_held_is_passed_over_in_bounded_parts() -> None:
    """Seen to fail: with 50,000 for one moment a turn took 120 ms."""
    room = ScheduleRoom()
    room.topic()
    ids = [room.later(b"%d" % number, SECOND) for number in range(5_000)]
    room.engine.sync()
    room.run()
    for first in range(0, 4_000, 1_000):
        room.cancel(*ids[first : first + 1_000])
    room.clock.advance(2 * SECOND)
    steps = room.schedule.run()
    parts = sum(1 for work in steps if work is None)
    assert parts >= 4_000 / LOOKED_AT
    room.engine.sync()
    assert len(room.values()) == 1_000
