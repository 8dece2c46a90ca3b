"""Test clocks that jump: ages are journal time, so nothing expires at once or never, whatever the wall clock does.

Seen to fail: with journal time taken from the wall clock all of these, in one direction or the other; with journal time
begun anew at each start, those over a reboot.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.logger import capturedLogs

from journal.constants import IDLE_MARK_AFTER
from journal.formats.witness import WITNESS_INTERVAL, read_witness
from journal.testing import ManualClock
from journal.transaction_states import State
from journal.xid import Xid
from tests.support.broker_room import Room, frames
from tests.support.builders import small_files, totals
from txbroker.broker.sessions.settings import OrphanAction
from txbroker.wire import messages

SECOND = 1_000_000
YEAR = 366 * 86_400 * SECOND
AGE = 100 * SECOND
JUMPS = {
    "steady": [0],
    "back": [-10 * YEAR],
    "forward": [10 * YEAR],
    "back and forth": [10 * YEAR, -20 * YEAR, 15 * YEAR],
    "to 1970": [-(1 << 62)],
}
Due = Callable[[Room], bool]


def begin_active(room: Room) -> Due:
    [partition] = room.topic()
    peer = room.peer()
    peer.ask(messages.Add, 1, partition, data=frames(b"a"))

    def over(room: Room) -> bool:
        room.broker.expire_transactions(room.engine.now())
        return not room.engine.transactions.live

    return over


def begin_prepared(room: Room) -> Due:
    [partition] = room.topic()
    peer = room.peer()
    run = frames(b"a")
    peer.ask(messages.Add, 1, partition, data=run)
    prepared = peer.ask(messages.Prepare, 1, Xid(1, b"g", b"b"), totals(run), 0)
    assert not isinstance(prepared, messages.Refused), prepared

    def over(room: Room) -> bool:
        with capturedLogs():
            room.broker.expire_transactions(room.engine.now())
        return all(t.state is not State.PREPARED for t in room.engine.transactions.live.values())

    return over


def begin_producer(room: Room) -> Due:
    room.topic()
    room.peer().ask(messages.OpenProducer, "p")

    def over(room: Room) -> bool:
        room.broker.sending.room.expire(room.engine.now())
        return not next(fold for fold in room.engine.folds if fold.name == "producers").producers

    return over


def begin_segment(room: Room) -> Due:
    [partition] = room.topic(segment_bytes=1 << 16, retention_age=AGE)
    peer = room.peer()
    for _ in range(2):
        peer.send(partition, b"v" * 40_000)
        room.flush()

    def over(room: Room) -> bool:
        room.flush()  # what was replayed is in memory, where retention takes nothing
        return room.engine.housekeeping.retain(room.engine.now()) > 0

    return over


def begin_journal(room: Room) -> Due:
    room.topic()

    def over(room: Room) -> bool:
        room.engine.housekeeping.run_inline()
        return room.engine.housekeeping.checkpoint_lsn > 0

    return over


DUTIES = {
    "an active transaction times out": begin_active,
    "a prepared one becomes an orphan": begin_prepared,
    "a producer is forgotten": begin_producer,
    "retention takes a segment": begin_segment,
    "a checkpoint is due": begin_journal,
}


def room_with(clock: ManualClock) -> Room:
    room = Room(
        small_files(checkpoint_interval=AGE, checkpoint_bytes=1 << 40),
        transaction_timeout=AGE,
        orphan_age=AGE,
        orphan_action=OrphanAction.ROLL_BACK,
        producer_age=AGE,
    )
    assert clock is not room.clock
    return room


def jump(room: Room, jumps: list[int]) -> None:
    for by in jumps:
        room.clock.set_wall(max(0, room.clock.wall() + by))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS)
@pytest.mark.parametrize("begin", DUTIES.values(), ids=DUTIES)
def test_what_expires_does_so_at_its_age_and_neither_before_nor_long_after(begin, jumps):
    room = room_with(ManualClock())
    over = begin(room)
    jump(room, jumps)
    assert not over(room), "at once"
    room.clock.advance(AGE // 2)
    jump(room, jumps)
    room.clock.advance(AGE - AGE // 2 - 1)
    assert not over(room), "too early"
    jump(room, jumps)
    room.clock.advance(SECOND)
    assert over(room), "never"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("uptime", [0, 1, YEAR], ids=["from zero", "almost from zero", "a year"])
@pytest.mark.parametrize("wall", [0, 1 << 60], ids=["1970", "far from now"])
@pytest.mark.parametrize("name", [name for name in DUTIES if "active" not in name])
def test_a_reboot_with_other_clocks_neither_ages_nor_rejuvenates(name, wall, uptime):
    """The monotonic clock counts from the boot: after it, it may be anywhere."""
    room = room_with(ManualClock())
    over = DUTIES[name](room)
    room.clock.advance(AGE // 2)
    room.topic("later")  # journal time is known up to the last record
    room.engine.sync()
    room.engine.close()
    room.clock = ManualClock(monotonic=uptime, wall=wall)
    room.start()
    if name == "a checkpoint is due":  # whose age counts from the start
        room.clock.advance(AGE // 2)
    assert not over(room)
    room.clock.advance(AGE - AGE // 2 - 1)
    assert not over(room)
    room.clock.advance(SECOND)
    assert over(room)


@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS)
def test_the_journal_is_marked_and_witnessed_when_it_is_idle_whatever_the_wall_clock_does(jumps):
    room = Room()
    room.topic()
    jump(room, jumps)
    assert not room.engine.housekeeping.mark_if_idle(room.engine.now())
    room.clock.advance(IDLE_MARK_AFTER)
    jump(room, jumps)
    assert room.engine.housekeeping.mark_if_idle(room.engine.now())
    room.engine.sync()
    room.clock.advance(WITNESS_INTERVAL)
    room.engine.housekeeping.run_inline()
    witness = read_witness(room.filesystem)
    assert witness is not None
    assert witness.forced == room.engine.forced_lsn
