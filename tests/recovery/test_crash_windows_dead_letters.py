"""The power goes before every single operation while a dead letter is moved; decision 0037 has the windows."""

from __future__ import annotations

import secrets

import pytest

from journal.records.group_entries import DEAD, Settled, Unfinished
from journal.records.record import OffsetsCommitted
from tests.support.crash_scene import at_every_operation
from tests.support.engine_room import GroupRoom
from txbroker.broker.fetches.fetches import run_inline
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.groups.dead_letters import DeadLetters
from txbroker.groups.settlement_judge import SettlementJudge

ID = b"g" * 16
GIVEN_UP = Unfinished(2, 3, DEAD, "why", 77)


def mover(room):
    judge = SettlementJudge(room.engine, BrokerSettings(), room.groups, secrets.token_bytes)
    session = (room.engine.start_number << 32) + 1
    return DeadLetters(
        room.engine, room.groups, judge.recorded, run_inline, lambda: session, secrets.token_bytes
    )


def settle(room, *unfinished):
    what = Settled(1, 0, 0, unfinished=list(unfinished))
    room.engine.accept(OffsetsCommitted("g", [], room.engine.now(), ID, [what]))
    room.engine.sync()


def begun(room):
    """Five messages, and a group that has failed with one of them."""
    room.topic()
    room.send(*[b"%d" % number for number in range(5)])
    settle(room, Unfinished(2, 2, 99, "before"))


def state(room):
    """Whether the message is as before, dead or finished; and the letters that there are."""
    kept = room.groups.find("g").settlements[1]
    known = kept.unfinished.get(2)
    if known is None:
        what = "finished" if 2 in kept.finished else "lost"
    else:
        what = "dead" if known.is_dead else "before"
    topic = room.engine.catalog.topics.get("t.dead")
    letters = [] if topic is None else [each for at in topic.partitions for each in room.values(at.number)]
    return what, letters


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "on the disk"])
def test_a_letter_is_moved_with_its_source_or_not_at_all(flushed):
    def act(room, done):
        if flushed:
            room.checkpoint()
        moving = mover(room)
        settle(room, GIVEN_UP)  # the move is forced, too, before this returns
        assert moving.moved == 1
        done.append("moved")
        room.checkpoint()

    found = set()
    for done, _, after in at_every_operation(begun, act, kind=GroupRoom):
        what, letters = state(after)
        assert (what, letters) in (("before", []), ("dead", []), ("finished", [b"2"]))
        assert what == "finished" or not done
        found.add((bool(done), what))
        again = mover(after)
        assert len(again) == (what == "dead")
        again.try_again()
        after.engine.sync()
        assert state(after) == (("before", []) if what == "before" else ("finished", [b"2"]))
    assert found == {(False, "before"), (False, "dead"), (False, "finished"), (True, "finished")}


def test_the_letter_of_a_crash_in_the_move_is_moved_once_however_often_the_power_goes():
    def begin(room):
        begun(room)
        settle(room, GIVEN_UP)

    def act(room, done):
        mover(room).try_again()
        room.engine.sync()
        done.append("moved")

    for done, _, after in at_every_operation(begin, act, twice=True, kind=GroupRoom):
        assert state(after) in (("dead", []), ("finished", [b"2"]))
        assert not done or state(after)[0] == "finished"
        mover(after).try_again()
        after.engine.sync()
        assert state(after) == ("finished", [b"2"])
