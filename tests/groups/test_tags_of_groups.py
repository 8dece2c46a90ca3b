"""Test the filter of a group as its setting: who may set it, what is refused, and where a group begins."""

import pytest
from crc32c import crc32c

from journal.constants import MIB
from journal.records.group_entries import GroupSettings, PartitionOffset
from journal.transaction_states import Totals
from tests.broker.fetches.filter_scene import fetch, filter_by, finished, position, send, tell, told
from tests.broker.fetches.group_scene import ID, claim, end, finish, prepare, settled
from tests.support.broker_room import Room, frames, refused
from tests.support.builders import small_files
from tests.support.manual_worker import ManualWorker
from txbroker.groups import tag_filtering
from txbroker.wire import messages
from txbroker.wire.messages import Whether


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


def bring(room, *tags):
    """What a consumer says that brings tags."""
    settings = GroupSettings(tags=sorted(tags))
    return room.peer().ask(messages.AlterGroup, "g", settings, ["tags"], Whether.NONE_OR_SAME, ID)


def tags(room):
    return room.broker.groups.find("g").settings.tags


def test_the_first_consumer_sets_them_and_others_bring_the_same_or_are_refused(room):
    assert isinstance(bring(room, "eu", "us"), messages.Done)
    assert isinstance(bring(room, "us", "eu"), messages.Done)
    said = refused(bring(room, "eu"), "GroupSettingsConflict")
    assert "group 'g' reads messages of other tags" in said
    assert tags(room) == ["eu", "us"]
    room.restart()
    assert tags(room) == ["eu", "us"]


def test_a_group_that_is_read_without_a_filter_gets_none_from_a_consumer(room, partition):
    claim(room, partition)
    refused(bring(room, "eu"), "GroupSettingsConflict")
    assert tags(room) == []


def test_nor_does_one_that_has_finished_something(room, partition):
    send(room, partition, "-")
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 1)], ID)
    refused(bring(room, "eu"), "GroupSettingsConflict")


def test_nor_does_one_with_members_that_have_nothing_yet(room):
    room.peer().ask(messages.JoinGroup, "g", b"n" * 16, [], "there-is-none-yet-*", id=ID)
    assert not room.broker.groups.find("g").claims
    refused(bring(room, "eu"), "GroupSettingsConflict")


def test_an_operator_sets_and_removes_them_at_any_time(room, partition):
    claim(room, partition)
    filter_by(room, "eu")
    assert tags(room) == ["eu"]
    filter_by(room)
    assert tags(room) == []


@pytest.mark.parametrize(
    "wrong", [["b", "a"], ["a", "a"], [""], ["x" * 256], [str(n) for n in range(10, 27)]]
)
def test_what_no_message_has_as_tags_is_refused(room, wrong):
    asked = room.peer().ask(messages.AlterGroup, "g", GroupSettings(tags=wrong), ["tags"], Whether.ALWAYS, ID)
    assert "nothing has changed" in refused(asked, "InvalidSetting")


def test_other_settings_stay_as_they_are(room):
    filter_by(room, "eu")
    changed = room.peer().ask(
        messages.AlterGroup,
        "g",
        GroupSettings(expiry=60_000_000, tags=["no"]),
        ["expiry"],
        Whether.ALWAYS,
        ID,
    )
    assert isinstance(changed, messages.Done)
    assert tags(room) == ["eu"]


def test_a_reader_from_before_the_filter_says_itself_where_the_group_begins(room, partition):
    """It may have messages of below, which were handed out and are not finished."""
    send(room, partition, "eu-e-")
    generation = claim(room, partition)
    assert fetch(room, partition, 0, generation)[:2] == ([0, 1, 2, 3, 4], 5)
    filter_by(room, "eu")
    send(room, partition, "-e-", 5)
    assert fetch(room, partition, 5, generation) == ([6], 8, "5, 7")
    assert position(room, partition) is None
    room.restart()
    send(room, partition, "-", 8)
    assert fetch(room, partition, 8, generation, wait=0) == ([], 9, "8")
    assert position(room, partition) is None
    peer = room.peer()
    peer.ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 1, generation)], ID)
    assert fetch(room, partition, 9, generation, wait=0) == ([], 9, "")
    assert (position(room, partition), finished(room, partition)) == (3, "4-5, 7-8")


def test_a_reader_that_begins_where_it_is_told_nothing_is_where_the_group_begins(room, partition):
    filter_by(room, "eu")
    send(room, partition, "eee-e")
    generation = claim(room, partition)
    assert fetch(room, partition, 2, generation)[:2] == ([2, 4], 5)
    assert (position(room, partition), finished(room, partition)) == (2, "3")
    send(room, partition, "-", 5)
    fetch(room, partition, 5, generation, wait=0)
    assert (position(room, partition), finished(room, partition)) == (2, "3, 5")


def test_a_group_begins_at_the_first_fetch_of_its_reader_also_if_that_could_not_be_noted_then(
    room, partition
):
    """A prepared transaction holds the partition while the first fetch is answered."""
    filter_by(room, "eu")
    send(room, partition, "ee--e")
    prepare(room, settled(partition, 4))
    generation = claim(room, partition)
    assert fetch(room, partition, 0, generation)[0] == [0, 1, 4]
    send(room, partition, "-e", 5)
    assert fetch(room, partition, 5, generation) == ([6], 7, "")
    assert position(room, partition) is None
    end(room, messages.Rollback)
    send(room, partition, "-e", 7)
    assert fetch(room, partition, 7, generation) == ([8], 9, "7")
    assert (position(room, partition), finished(room, partition)) == (0, "2-3, 5, 7")


def test_so_it_does_if_a_large_commit_was_being_applied_then():
    room = Room(small_files(pool_bytes=128 * MIB))
    [partition], [other] = room.topic("orders"), room.topic("large")
    filter_by(room, "eu")
    send(room, partition, "ee--e-e")
    generation = claim(room, partition)
    writer, data = room.peer(), frames(*[b"x" * MIB] * 9)
    for _ in range(2):
        writer.ask(messages.Add, 1, other, data=data)
    writer.tell(messages.Commit, serial=1, totals=Totals(18, 2, crc32c(data, crc32c(data))))
    assert room.engine.busy
    peer = room.peer()
    asked = tell(peer, partition, 0, generation, until=5)
    assert (told(peer, asked, 0), position(room, partition)) == (([0, 1, 4], 5, "2-3"), None)
    room.engine.sync()
    assert fetch(room, partition, 5, generation) == ([6], 7, "5")
    assert (position(room, partition), finished(room, partition)) == (0, "2-3, 5")


def test_a_reader_that_was_fenced_does_not_say_where_the_next_one_begins(room, partition):
    filter_by(room, "eu")
    send(room, partition, "ee-e")
    prepare(room, settled(partition, 3))
    old = claim(room, partition)
    pool = ManualWorker()
    run, room.broker.fetching._run_blocking = room.broker.fetching._run_blocking, pool.submit
    tell(room.peer(), partition, 3, old, wait=0)
    generation = claim(room, partition)
    room.broker.fetching._run_blocking = run
    assert fetch(room, partition, 0, generation)[0] == [0, 1, 3]
    pool.step()
    end(room, messages.Rollback)
    send(room, partition, "-", 4)
    fetch(room, partition, 4, generation, wait=0)
    assert (position(room, partition), finished(room, partition)) == (0, "2, 4")


def test_groups_that_were_deleted_are_forgotten(room, partition, monkeypatch):
    monkeypatch.setattr(tag_filtering, "SPARE", 3)
    filter_by(room, "eu", group="stays")
    for number in range(20):
        filter_by(room, "eu", group=f"job-{number}")
        deleted = room.peer().ask(messages.DeleteGroup, f"job-{number}", ID)
        assert isinstance(deleted, messages.Done)
    noted = room.broker.fetching.filtering._filtered_since
    assert len(noted) <= 2 + 3 + 1
    assert "stays" in noted


class TestAnotherFilter:
    """What was examined for the filter before is not finished unseen when the group goes back."""

    AHEAD = 5

    @pytest.fixture
    def room(self):
        return Room(max_ahead=self.AHEAD)

    @pytest.fixture
    def generation(self, room, partition):
        """A reader has gone farther ahead than may be finished: offsets 6 to 11 are kept."""
        filter_by(room, "eu")
        send(room, partition, "ue" + "u" * 10)
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation)[:2] == ([1], 12)
        assert (position(room, partition), finished(room, partition)) == (1, "2-5")
        return generation

    @staticmethod
    def seek(room, partition, offset, generation):
        moved = [PartitionOffset(partition, offset, generation)]
        assert isinstance(room.peer().ask(messages.CommitOffsets, "g", moved, ID), messages.Done)

    @pytest.mark.parametrize("new", [["us"], []])
    def test_it_comes_again_when_the_group_has_moved_back(self, room, partition, generation, new):
        filter_by(room, *new)
        self.seek(room, partition, 0, generation)
        numbers = fetch(room, partition, 0, generation)[0]
        assert [number for number in numbers if number != 1] == [0, *range(2, 12)]
        finish(room, settled(partition, *range(5), generation=generation))
        finish(room, settled(partition, 5, generation=generation))
        assert (position(room, partition), finished(room, partition)) == (6, "")

    def test_also_when_it_has_moved_on_since(self, room, partition, generation):
        filter_by(room)
        for offset in (0, 2):
            self.seek(room, partition, offset, generation)
        finish(room, settled(partition, 2, 3, 4, generation=generation))
        assert (position(room, partition), finished(room, partition)) == (5, "")

    def test_what_could_not_be_finished_is_examined_for_the_new_filter(self, room, partition, generation):
        filter_by(room, "us")
        send(room, partition, "-", 12)
        fetch(room, partition, 12, generation, wait=0)
        finish(room, settled(partition, 1, generation=generation))
        fetch(room, partition, 13, generation, wait=0)
        assert (position(room, partition), finished(room, partition)) == (6, "")

    def test_what_matches_neither_is_finished(self, room, partition):
        filter_by(room, "eu")
        send(room, partition, "e" + "-" * 11)
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        filter_by(room, "us")
        send(room, partition, "-", 12)
        fetch(room, partition, 12, generation, wait=0)
        finish(room, settled(partition, 0, generation=generation))
        fetch(room, partition, 13, generation, wait=0)
        assert position(room, partition) == 13

    def test_without_a_filter_nothing_that_was_kept_is_finished(self, room, partition, generation):
        filter_by(room)
        finish(room, settled(partition, 1, generation=generation))
        finish(room, settled(partition, 6, generation=generation))
        assert position(room, partition) == 7

    @pytest.mark.parametrize("new", [["us"], []])
    def test_a_fetch_that_waits_begins_anew(self, room, partition, new):
        filter_by(room, "eu")
        send(room, partition, "uu")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        filter_by(room, *new)
        send(room, partition, "u", 2)
        room.engine.sync()
        assert told(peer, asked, 0) == ([0, 1, 2], 3, "")
        assert finished(room, partition) == ""

    @pytest.mark.parametrize("new", [["us"], []])
    def test_what_was_being_examined_is_not_answered(self, room, partition, new):
        filter_by(room, "eu")
        send(room, partition, "ue")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, generation, wait=0)
        filter_by(room, *new)
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == ([], 0, "")
        assert position(room, partition) is None

    def test_nor_is_it_finished_if_it_was_being_examined_again(self, room, partition, generation):
        room.restart()
        send(room, partition, "-", 12)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        tell(room.peer(), partition, 12, generation, wait=0)
        filter_by(room, "us")
        while pool.work:
            pool.step()
        finish(room, settled(partition, 1, generation=generation))
        tell(room.peer(), partition, 13, generation, wait=0)
        while pool.work:
            pool.step()
        assert position(room, partition) == 6


def test_a_group_begins_where_its_reader_does_also_if_all_matches(room, partition):
    filter_by(room, "eu")
    send(room, partition, "ee")
    fetch(room, partition, 0, claim(room, partition))
    assert position(room, partition) == 0
