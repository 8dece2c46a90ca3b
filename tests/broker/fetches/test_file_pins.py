"""Test pins: which files they keep, how long, and what happens to these afterwards."""

from __future__ import annotations

import pytest

from journal.check import Level, verify
from journal.constants import KIB
from journal.errors import DiskFull
from journal.records.record import Mark, TopicDeleted
from journal.transaction_states import Cause
from tests.support.broker_room import Room as BrokerRoom
from tests.support.broker_room import refused
from tests.support.engine_room import Room, contents
from txbroker.wire import messages

SEGMENT = 4 * KIB
KEPT_APART = ("witness", "lock", "ballast")
"""Files that are no part of what a checkpoint refers to, and are written in place."""


def busy_room() -> Room:
    """Some segments, staged frames of a prepared transaction, two topics, a checkpoint or two."""
    room = Room()
    room.topic("t", 1, segment_bytes=SEGMENT, retention_bytes=3 * SEGMENT)
    room.topic("gone", 1)
    room.send(b"here", number=2)
    room.begin((1, b"staged" * 50)).prepare("x").sync()
    for number in range(12):
        room.send(b"%d" % number * KIB)
    room.flush()
    room.checkpoint()
    room.send(b"more")
    room.checkpoint()
    return room


def go_on(room: Room, rounds: int = 4) -> None:
    """All that makes files go: retention, a deleted topic, an ended transaction, rolled journals, checkpoints."""
    transactions = room.engine.transactions
    for number in [*transactions.live]:
        transactions.rollback(number, Cause.CLIENT)
    if "gone" in room.engine.catalog.topics:
        room.engine.accept(TopicDeleted("gone", room.engine.now()))
    for _ in range(rounds):
        for number in range(40):
            room.send(b"%d" % number * KIB)
        room.flush()
        room.engine.housekeeping.retain(room.engine.now())
        room.engine.sync()
        room.checkpoint()


def begun(room: Room) -> dict[str, bytes]:
    """The files that a reader would find, with as much of their bytes as there is."""
    return {
        path: data
        for path, data in contents(room.inner).items()
        if path.split("/")[0] not in KEPT_APART and "spare" not in path and "recycled" not in path
    }


def missing(room: Room, before: dict[str, bytes]) -> set[str]:
    return {path for path in before if path not in contents(room.inner)}


class TestPins:
    def test_without_a_pin_files_go(self):
        room = busy_room()
        before = begun(room)
        go_on(room)
        gone = {path.split("/")[0] for path in missing(room, before)}
        assert gone == {"journal", "checkpoints", "partitions", "staged"}

    def test_while_one_is_held_no_file_goes_that_the_newest_checkpoint_or_the_journal_above_refers_to(self):
        room = busy_room()
        before = begun(room)
        pin = room.engine.housekeeping.pin()
        assert pin.lsn == room.checkpoints()[-1]
        go_on(room)
        assert not missing(room, before)
        after = contents(room.inner)
        for path, data in before.items():
            if path.startswith(("checkpoints/", "staged/")) or (path.endswith(".log") and "gone" not in path):
                assert after[path].startswith(data), path
        assert pin.held

    def test_what_it_held_back_goes_when_it_is_released_though_nothing_else_happens(self):
        room = busy_room()
        before = begun(room)
        pin = room.engine.housekeeping.pin()
        go_on(room)
        held = len(contents(room.inner))
        room.engine.housekeeping.unpin(pin)
        room.engine.housekeeping.run_inline()
        gone = {path.split("/")[0] for path in missing(room, before)}
        assert gone == {"journal", "checkpoints", "partitions", "staged"}
        assert len(contents(room.inner)) < held
        assert len(room.checkpoints()) == 2
        assert not pin.held

    def test_the_last_of_several_lets_go(self):
        room = busy_room()
        before = begun(room)
        first, second = room.engine.housekeeping.pin(), room.engine.housekeeping.pin()
        assert room.engine.housekeeping.pins == 2
        room.engine.housekeeping.unpin(first)
        room.engine.housekeeping.unpin(first)
        go_on(room)
        assert not missing(room, before)
        room.engine.housekeeping.unpin(second)
        go_on(room, rounds=1)
        assert missing(room, before)

    def test_a_disk_that_needs_the_space_lets_go_of_all_before_work_is_refused(self):
        room = busy_room()
        before = begun(room)
        pin = room.engine.housekeeping.pin()
        go_on(room, rounds=2)
        assert not missing(room, before)
        room.plan.free_bytes = room.engine.housekeeping.reserve_bytes + 4 * room.settings.pool_bytes - 1
        room.engine.housekeeping.run_inline()
        assert not pin.held
        assert not room.engine.full
        assert missing(room, before)

    def test_none_is_given_where_space_is_scarce_already(self):
        room = busy_room()
        room.plan.free_bytes = room.engine.housekeeping.reserve_bytes + 4 * room.settings.pool_bytes - 1
        with pytest.raises(DiskFull, match="no file can be kept from being removed"):
            room.engine.housekeeping.pin()
        room.plan.free_bytes = 1 << 30
        assert room.engine.housekeeping.pin().held

    @pytest.mark.parametrize("end", ["killed", "crashed"])
    def test_a_start_finds_all_sound_that_a_pin_had_held_back_and_removes_it(self, end):
        room = busy_room()
        before = begun(room)
        room.engine.housekeeping.pin()
        go_on(room)
        assert len(room.checkpoints()) > 3
        after = room.killed() if end == "killed" else room.crashed(1)
        assert after.values() == room.values()
        assert [each for each in verify(after.inner, Level.DEEP) if not each.harmless] == []
        go_on(after, rounds=1)
        for _ in range(2):  # what is dropped before a checkpoint goes after the next one
            after.send(b"once more")
            after.checkpoint()
        assert len(after.checkpoints()) == 2
        assert missing(after, before)
        stores = after.engine.catalog.stores.values()
        assert set(after.inner.list_directory("partitions")) == {
            store.directory.rpartition("/")[2] for store in stores
        }
        for store in stores:
            logs = [name for name in after.inner.list_directory(store.directory) if name.endswith(".log")]
            assert {f"{store.directory}/{name}" for name in logs} == {each.path for each in store.segments}


class TestRequests:
    def test_a_session_has_one_pin_and_is_told_whether_it_was_held(self):
        room = BrokerRoom()
        room.topic()
        peer = room.peer()
        assert peer.ask(messages.UnpinFiles) == messages.FilesPinned(3, 0, False)
        room.engine.housekeeping.checkpoint_inline()
        lsn = room.engine.housekeeping.checkpoint_lsn
        cut = room.engine.last_lsn
        assert peer.ask(messages.PinFiles) == messages.FilesPinned(4, lsn, True, cut)
        room.engine.accept(Mark(room.engine.now()))
        assert peer.ask(messages.PinFiles) == messages.FilesPinned(5, lsn, True, cut)
        assert peer.ask(messages.AskStatus).values["pins"] == 1
        assert peer.ask(messages.UnpinFiles) == messages.FilesPinned(7, lsn, True, cut)
        assert peer.ask(messages.AskStatus).values["pins"] == 0

    def test_a_pin_is_answered_when_all_up_to_its_cut_is_forced(self):
        room = BrokerRoom()
        peer = room.peer()
        room.topic()
        lsn = room.engine.accept(Mark(room.engine.now()))
        assert room.engine.forced_lsn < lsn
        pinned = peer.ask(messages.PinFiles)
        assert (pinned.cut, room.engine.forced_lsn >= lsn) == (lsn, True)

    def test_a_client_asks_whether_its_pin_is_held_and_takes_none_by_that(self):
        room = BrokerRoom()
        peer = room.peer()
        assert not peer.ask(messages.PinFiles, again=True).held
        assert room.engine.housekeeping.pins == 0
        pinned = peer.ask(messages.PinFiles)
        asked = peer.ask(messages.PinFiles, again=True)
        assert (asked.held, asked.lsn, asked.cut) == (True, pinned.lsn, pinned.cut)
        room.filesystem.free = 1
        room.engine.housekeeping.watch_space()
        room.filesystem.free = 1 << 50
        assert not peer.ask(messages.PinFiles, again=True).held
        assert not peer.ask(messages.PinFiles, again=True).held, "it stays lost"
        assert not peer.ask(messages.UnpinFiles).held

    def test_a_pin_ends_with_its_session(self):
        room = BrokerRoom()
        peer, other = room.peer(), room.peer()
        peer.ask(messages.PinFiles)
        peer.leave()
        assert room.engine.housekeeping.pins == 0
        assert not other.ask(messages.UnpinFiles).held

    def test_a_client_that_comes_again_has_none(self):
        room = BrokerRoom()
        peer = room.peer()
        peer.ask(messages.PinFiles)
        again = peer.again()
        assert room.engine.housekeeping.pins == 0
        assert not again.ask(messages.UnpinFiles).held

    def test_it_is_told_that_the_disk_has_taken_it_and_gets_another(self):
        room = BrokerRoom()
        peer = room.peer()
        peer.ask(messages.PinFiles)
        room.filesystem.free = 1
        room.engine.housekeeping.watch_space()
        refused(peer.ask(messages.PinFiles), "DiskFull")
        assert not peer.ask(messages.UnpinFiles).held
        room.filesystem.free = 1 << 50
        assert peer.ask(messages.PinFiles).held
