"""Test the filter of a group as its setting: who may set it, what is refused, and where a group begins."""

import pytest

from journal.formats.group_entries import GroupSettings, PartitionOffset
from tests.broker.fetches.test_filtered_fetches import ID, claim, fetch, filter_by, finished, position, send
from tests.support.broker_room import Room, refused
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
