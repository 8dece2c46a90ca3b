"""Test fetches for groups with a filter by tags: what is finished, when, and what is examined again."""

import pytest

from journal.formats.offset_set_bytes import decode_offsets
from journal.records.group_entries import GroupSettings, PartitionOffset
from journal.records.record import LogStartMoved
from tests.broker.fetches.fetch_scene import SECOND
from tests.broker.fetches.filter_scene import fetch, filter_by, finished, position, send, tell, told
from tests.broker.fetches.group_scene import AHEAD, ID, claim, end, finish, prepare, settled
from tests.support.broker_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room(max_ahead=AHEAD)


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    filter_by(room, "eu")
    return partition


class TestFinishing:
    def test_for_a_claim_what_does_not_match_is_finished_when_it_is_answered(self, room, partition):
        send(room, partition, "--e-e--")
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation) == ([2, 4], 7, "0-1, 3, 5-6")
        assert (position(room, partition), finished(room, partition)) == (2, "3, 5-6")

    def test_without_a_claim_nothing_is_finished(self, room, partition):
        send(room, partition, "--e")
        assert fetch(room, partition, 0) == ([2], 3, "0-1")
        assert position(room, partition) is None
        finish(room, offsets=[PartitionOffset(partition, 0)])
        assert fetch(room, partition, 0) == ([2], 3, "0-1")
        assert (position(room, partition), finished(room, partition)) == (0, "")

    def test_the_first_position_of_a_group_is_where_its_reader_begins(self, room, partition):
        send(room, partition, "---e-e")
        generation = claim(room, partition)
        assert fetch(room, partition, 2, generation) == ([3, 5], 6, "2, 4")
        assert (position(room, partition), finished(room, partition)) == (3, "4")

    def test_a_position_moves_on_over_what_was_finished(self, room, partition):
        send(room, partition, "e--e--")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, offsets=[PartitionOffset(partition, 1, generation)])
        assert position(room, partition) == 3
        finish(room, settled(partition, 3, generation=generation))
        assert position(room, partition) == 6

    def test_the_answer_waits_for_the_force(self, room, partition):
        send(room, partition, "-e")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        assert peer.answer(asked) is None
        room.engine.sync()
        assert told(peer, asked, 0) == ([1], 2, "0")

    def test_an_answer_waits_for_the_force_of_the_filter(self, room, partition):
        send(room, partition, "ue")
        peer = room.peer()
        settings = GroupSettings(tags=["us"])
        peer.tell(messages.AlterGroup, "g", settings, ["tags"], messages.Whether.ALWAYS, ID)
        asked = tell(peer, partition, 0)
        assert peer.answer(asked) is None
        room.engine.sync()
        assert told(peer, asked, 0) == ([0], 2, "1")

    def test_what_has_been_forced_is_finished_after_a_restart_and_nothing_else(self, room, partition):
        send(room, partition, "-e-e--")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        room.restart()
        assert (position(room, partition), finished(room, partition)) == (1, "2, 4-5")
        send(room, partition, "--", 6)
        peer = room.peer()
        tell(peer, partition, 6, generation, wait=0)
        room.engine.close()  # before the force
        room.start()
        assert (position(room, partition), finished(room, partition)) == (1, "2, 4-5")
        assert room.broker.groups.find("g").settings.tags == ["eu"]

    def test_what_has_attempts_comes_and_is_not_finished(self, room, partition):
        send(room, partition, "-u-e")
        generation = claim(room, partition)
        finish(room, settled(partition, unfinished=[(1, 2, 0, "why")], generation=generation))
        assert fetch(room, partition, 0, generation) == ([1, 3], 4, "0, 2")
        assert (position(room, partition), finished(room, partition)) == (1, "2")

    def test_nor_is_what_has_failed_since_it_was_examined(self, room, partition):
        send(room, partition, "-u-")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        finish(room, settled(partition, unfinished=[(1, 2, 0, "why")], generation=generation))
        room.timers.advance(1)
        room.engine.sync()
        assert peer.answer(asked) is not None
        assert (position(room, partition), finished(room, partition)) == (1, "2")

    def test_what_waits_for_its_time_is_told_as_waiting(self, room, partition):
        send(room, partition, "-ue")
        generation = claim(room, partition)
        later = room.engine.now() + 5 * SECOND
        finish(room, settled(partition, unfinished=[(1, 2, later, "why")], generation=generation))
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        room.engine.sync()
        [part] = peer.answer(asked).partitions
        assert str(decode_offsets(part.waiting, 0)) == "1"
        assert told(peer, asked, 0) == ([1, 2], 3, "0")

    def test_a_fenced_reader_finishes_nothing(self, room, partition):
        send(room, partition, "--")
        old = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, old, wait=0)
        claim(room, partition)
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == "GenerationFenced"
        assert position(room, partition) is None

    def test_a_session_that_ends_meanwhile_finishes_nothing(self, room, partition):
        send(room, partition, "--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        tell(peer, partition, 0, generation, wait=0)
        peer.leave()
        pool.step()
        room.engine.sync()
        assert position(room, partition) is None

    def test_a_topic_that_is_deleted_meanwhile_is_told(self, room, partition):
        send(room, partition, "--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, generation, wait=0)
        room.peer().ask(messages.DeleteTopic, "orders", room.topic_id())
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == "GenerationFenced"

    def test_what_retention_removes_meanwhile_is_finished(self, room, partition):
        send(room, partition, "---e--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        room.engine.accept(LogStartMoved(partition, 2, room.engine.now()))
        room.engine.catalog.stores[partition].move_start(2)
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == ([3], 6, "0-2, 4-5")
        assert (position(room, partition), finished(room, partition)) == (3, "4-5")

    def test_on_a_full_disk_it_is_left_and_finished_later(self, room, partition):
        send(room, partition, "-e-")
        generation = claim(room, partition)
        room.engine.full_at = 0
        assert fetch(room, partition, 0, generation)[:2] == ([1], 3)
        assert (
            position(room, partition) == 1
        )  # a claimed partition is no new one: to finish something is always possible

    def test_the_lag_moves_on(self, room, partition):
        send(room, partition, "--e---")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, offsets=[PartitionOffset(partition, 3, generation)])
        [group] = room.peer().ask(messages.ListGroups).groups
        assert group.positions == [("orders", 0, 6, 0)]


class TestExaminedAgain:
    def test_what_is_too_far_ahead_is_finished_when_the_lowest_is(self, room, partition):
        send(room, partition, "e" + "-" * 2 * AHEAD + "e")
        end = 2 * AHEAD + 2
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation)[:2] == ([0, end - 1], end)
        assert (position(room, partition), finished(room, partition)) == (0, f"1-{AHEAD - 1}")
        peer = room.peer()
        asked = tell(peer, partition, end, generation)  # it waits, and is not answered for that
        finish(room, settled(partition, 0, generation=generation))
        assert position(room, partition) == end - 1
        assert peer.answer(asked) is None

    def test_a_reader_that_goes_on_has_all_of_it_finished_in_the_end(self, room, partition):
        text = "e" + "-" * 3 * AHEAD
        send(room, partition, text)
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, settled(partition, 0, generation=generation))
        assert fetch(room, partition, len(text), generation) is None
        assert position(room, partition) == len(text)

    @pytest.mark.parametrize("kind", [messages.Commit, messages.Rollback])
    def test_what_a_prepared_transaction_holds_is_finished_after_its_end(self, room, partition, kind):
        send(room, partition, "ee-e-")
        generation = claim(room, partition)
        finish(room, offsets=[PartitionOffset(partition, 0, generation)])
        prepare(room, settled(partition, 1, 2, generation=generation))
        assert fetch(room, partition, 0, generation) == ([0, 1, 3], 5, "4")
        assert (position(room, partition), finished(room, partition)) == (0, "4")
        peer = room.peer()
        asked = tell(peer, partition, 5, generation)
        end(room, kind)
        assert (position(room, partition), finished(room, partition)) == (
            0,
            "1-2, 4" if kind is messages.Commit else "2, 4",
        )
        assert peer.answer(asked) is None

    def test_after_a_restart_what_could_not_be_finished_is_examined_again(self, room, partition):
        send(room, partition, "e" + "-" * 2 * AHEAD)
        end = 2 * AHEAD + 1
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        room.restart()
        peer = room.peer()
        tell(peer, partition, end, generation)
        finish(room, settled(partition, 0, generation=generation))
        assert position(room, partition) == end

    def test_it_is_not_tried_again_before_something_has_changed(self, room, partition, monkeypatch):
        send(room, partition, "e" + "-" * 2 * AHEAD)
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        tried = []
        monkeypatch.setattr(room.broker.fetching.filtering, "settle", lambda *what: tried.append(what))
        peer = room.peer()
        tell(peer, partition, 2 * AHEAD + 1, generation)
        send(room, partition, "---", 200)
        assert tried == []

    def test_an_operator_may_change_the_filter_and_what_was_examined_stays_finished(self, room, partition):
        send(room, partition, "ueu")
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation) == ([1], 3, "0, 2")
        filter_by(room, "us")
        send(room, partition, "ue", 3)
        assert fetch(room, partition, 3, generation) == ([3], 5, "4")
        assert finished(room, partition) == "2, 4"
        filter_by(room)
        send(room, partition, "-", 5)
        assert fetch(room, partition, 5, generation) == ([5], 6, "")
