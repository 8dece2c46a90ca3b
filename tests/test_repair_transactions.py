"""A repair leaves no transaction half there: what lost its frames is rolled back, and its coordinator can be told.

Seen to fail in a copy: with a transaction left undecided that lost its frames, in its file or in a gap of the journal.
"""

from __future__ import annotations

import pytest

from journal import inspect
from journal.transaction import Cause, State
from tests.engine_room import Room, contents, damage, xid_of
from tests.repair_checks import is_repaired
from tests.repair_scene import all_files, held, scene


@pytest.fixture(scope="module")
def disk():
    """A directory with everything in it, and what it holds. Clone it."""
    room = scene()
    return room.inner, held(room)


def staged_scene():
    """A prepared transaction whose frames are in a staged file alone."""
    room = Room()
    room.topic("t", 2)
    room.begin((1, b"in doubt"), (2, b"too")).prepare("old")
    room.engine.sync()
    for _ in range(4):
        for _ in range(8):
            room.send(bytes(9000))
        room.checkpoint()
    [path] = [path for path in all_files(room.inner) if path.startswith("staged/")]
    return room, path


def test_a_prepared_transaction_that_lost_its_frames_is_rolled_back_and_its_coordinator_can_be_told():
    room, path = staged_scene()
    before, filesystem = held(room), room.inner.kill_clone()
    filesystem.unlink(path)
    diagnosis, after, started = is_repaired((filesystem, before), filesystem)
    assert [loss.what.xid for loss in diagnosis.lost] == [xid_of("old")]
    assert after.prepared == set()
    number = started.engine.transactions.find(xid_of("old"))
    outcome = started.engine.transactions.outcome(number)
    assert (outcome.state, outcome.cause, outcome.heuristic) == (State.ROLLED_BACK, Cause.OPERATOR, True)
    assert (outcome.by, "lost to damage" in outcome.why) == ("txbroker repair", True)


def test_staged_frames_that_the_journal_still_holds_are_written_again(disk):
    filesystem = disk[0].kill_clone()
    [path] = [path for path in all_files(filesystem) if path.startswith("staged/")]
    data = contents(filesystem)[path]
    damage(filesystem, path, 40)
    diagnosis, after, room = is_repaired(disk, filesystem)
    assert diagnosis.lost == []
    assert contents(filesystem)[path] == data
    assert xid_of("old") in after.prepared
    transactions = room.engine.transactions
    transactions.commit(transactions.find(xid_of("old")), Cause.CLIENT)
    room.engine.sync()
    assert b"in doubt 1" in room.values(1)


def test_a_prepared_transaction_whose_frames_lay_in_a_gap_of_the_journal_is_rolled_back():
    room = Room()
    room.topic("t", 2)
    room.begin((1, b"in doubt"), (2, b"too")).prepare("lost")
    room.engine.sync()
    room.begin((1, b"also in doubt")).prepare("kept")
    room.engine.sync()
    room.send(b"after")
    room.checkpoint()
    before, filesystem = held(room), room.inner.kill_clone()
    add = next(e for e in inspect.walk_journal(filesystem) if type(e.record).__name__ == "TransactionAdded")
    damage(filesystem, add.path, add.position + 20)
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert [loss.what.xid for loss in diagnosis.lost] == [xid_of("lost")]
    assert after.prepared == {xid_of("kept")}


def test_what_was_committed_above_the_checkpoint_and_lost_its_frames_cuts_the_journal():
    room, path = staged_scene()
    transactions = room.engine.transactions
    room.send(b"before")
    transactions.commit(transactions.find(xid_of("old")), Cause.CLIENT)
    room.engine.sync()
    room.send(b"after")
    before, filesystem = held(room), room.inner.kill_clone()
    filesystem.unlink(path)
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert after.values["t", 0][-1] == b"before"
    assert any("xid 1:old:" in loss.text or "without an xid" in loss.text for loss in diagnosis.lost)
