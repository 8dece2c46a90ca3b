"""More partitions for a topic through the broker's door: within its limits, in one step, never fewer, once.

Seen to fail: with settings and partitions accepted as two records a kill leaves one without the other; without the
comparison with what is there, a repetition writes a record each time.
"""

import pytest

from journal.check import Level, walk_journal
from journal.check.effects import effect_of
from journal.check.log_check import CrossCheck
from journal.check.tally import Tally
from journal.check.verification import verify
from journal.checkpoints.rows import read_sound
from journal.engine.settings import JournalSettings
from journal.records.record import TopicAltered
from journal.settings import TopicSettings
from tests.support.broker_room import Room, frames
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


def grow(room, partitions, name="orders", topic_id=None, **changes):
    topic_id = room.topic_id(name) if topic_id is None else topic_id
    return room.peer().ask(messages.AlterTopic, name, topic_id, changes, partitions)


def numbers(room, name="orders"):
    [topic] = room.peer().ask(messages.DescribeTopics, [name]).topics
    assert [part.index for part in topic.partitions] == list(range(len(topic.partitions)))
    return [part.number for part in topic.partitions]


def damages(room):
    return [each for each in verify(room.filesystem, Level.DEEP) if not each.harmless]


def alterations(room):
    room.engine.sync()
    return [
        each.record
        for each in walk_journal(room.filesystem)
        if isinstance(getattr(each, "record", None), TopicAltered)
    ]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_new_partitions_follow_those_that_there_are_and_take_sends_transactions_and_positions(
    room, checkpoint
):
    room.topic(partitions=2)
    room.topic("other")
    answer = grow(room, 4, force_messages=7)
    assert [part.number for part in answer.topics[0].partitions] == [1, 2, 4, 5]
    peer = room.peer()
    assert peer.send(5, b"a").base_offset == 0
    peer.ask(messages.CommitOffsets, "g", [messages.PartitionOffset(5, 1)], b"i" * 16)
    if checkpoint:
        room.flush()
        room.engine.housekeeping.checkpoint_inline()
    grow(room, 5)
    assert room.peer().send(6, b"b").base_offset == 0
    for _ in range(2):
        room.restart()
        assert numbers(room) == [1, 2, 4, 5, 6]
        fetched = room.peer().ask(messages.Fetch, [(5, 0, 0), (6, 0, 0)])
        assert [part.high_watermark for part in fetched.partitions] == [1, 1]
        topic = room.engine.catalog.topics["orders"]
        assert topic.settings == TopicSettings(force_messages=7)
        assert {store.settings for store in topic.partitions} == {topic.settings}
        assert room.broker.groups.groups["g"].position(5) == 1
    assert damages(room) == []


def test_settings_and_partitions_of_one_request_are_one_record(room):
    room.topic(partitions=2)
    grow(room, 3, force_messages=7)
    [record] = alterations(room)
    assert (record.settings.force_messages, record.added.partitions) == (7, 1)


def test_the_same_number_again_is_no_error_and_writes_nothing(room):
    room.topic(partitions=2)
    first = grow(room, 4)
    before = room.engine.last_lsn
    for _ in range(2):
        again = grow(room, 4)
        assert again.topics == first.topics
    assert room.engine.last_lsn == before
    assert len(alterations(room)) == 1


def test_a_setting_changes_also_if_the_number_is_the_same(room):
    room.topic(partitions=2)
    assert grow(room, 2, force_messages=7).topics[0].settings.force_messages == 7
    [record] = alterations(room)
    assert record.added is None


@pytest.mark.parametrize(
    ("partitions", "changes", "error", "said"),
    [
        (1, {}, "InvalidSetting", "which has 2: a topic gets more of them, never fewer"),
        (-5, {}, "InvalidSetting", "never fewer"),
        (0, {}, "InvalidSetting", "no number of partitions"),
        (10_001, {}, "InvalidSetting", "10000 are allowed"),
        (5, {}, "LimitExceeded", "max_topic_partitions"),
        (6, {}, "LimitExceeded", "would make 6 in all, the limit is 5"),
        (3, {"force_messages": 0}, "InvalidSetting", "force_messages"),
        (1, {"force_messages": 7}, "InvalidSetting", "never fewer"),
        (3, {"max_message_bytes": 1 << 21}, "InvalidSetting", "max_frame"),
    ],
)
def test_what_cannot_be_is_refused_and_neither_settings_nor_partitions_change(
    partitions, changes, error, said
):
    journal = JournalSettings(low_water_bytes=0, file_bytes=1 << 20, max_partitions=5)
    room = Room(journal, max_topic_partitions=4, max_frame=1 << 20)
    room.topic(partitions=2)
    refused = grow(room, partitions, **changes)
    assert refused.error == error
    assert said in refused.message
    assert "nothing" in refused.message.lower()
    assert numbers(room) == [1, 2]
    assert room.engine.catalog.topics["orders"].settings == TopicSettings()
    assert alterations(room) == []


def test_a_topic_with_more_partitions_than_the_limit_is_now_keeps_them_and_takes_settings(room):
    room.topic(partitions=4)
    room.settings = BrokerSettings(max_topic_partitions=3)
    room.restart()
    assert grow(room, 4, force_messages=7).topics[0].settings.force_messages == 7
    assert grow(room, 5).error == "LimitExceeded"


def test_a_full_disk_takes_no_more_partitions_but_settings_that_free_space(room):
    room.topic(partitions=2)
    room.engine.full_at = -1
    assert grow(room, 3, retention_bytes=1 << 20).error == "DiskFull"
    assert numbers(room) == [1, 2]
    assert grow(room, 2, retention_bytes=1 << 20).topics[0].settings.retention_bytes == 1 << 20


def test_a_topic_made_anew_under_the_name_does_not_grow(room):
    room.topic()
    assert grow(room, 3, topic_id=b"x" * 16).error == "UnknownTopic"
    assert numbers(room) == [1]


def test_the_outcome_archive_has_one_partition_for_good():
    room = Room(JournalSettings(low_water_bytes=0, outcome_archive=True))
    [own] = [topic for topic in room.engine.catalog.topics.values() if topic.partitions[0].internal]
    assert grow(room, 3, own.name, own.id).error == "InvalidName"


def test_directories_of_partitions_that_came_after_the_checkpoint_are_no_strays(room):
    room.topic(partitions=2)
    room.engine.housekeeping.checkpoint_inline()
    grow(room, 4)
    room.peer().send(4, b"a")
    room.flush()
    assert any(name.endswith(".4") for name in room.filesystem.list_directory("partitions"))
    assert list(verify(room.filesystem, Level.DEEP)) == []


def test_a_verification_forgets_all_logs_of_a_topic_that_is_deleted_behind_the_checkpoint(room):
    """Those that the journal's records have made, and those that only a checkpoint knows."""
    room.topic(partitions=2)
    room.topic("other")
    room.engine.housekeeping.checkpoint_inline()
    between = room.engine.last_lsn
    grow(room, 3)
    room.engine.housekeeping.checkpoint_inline()
    room.peer().ask(messages.DeleteTopic, "orders", room.topic_id())
    room.engine.sync()
    newest = read_sound(room.filesystem, room.engine.housekeeping.checkpoint_lsn)
    check = CrossCheck(room.filesystem, newest, newest, Tally())
    assert sorted(check._logs) == [1, 2, 3, 4]
    for entry in walk_journal(room.filesystem):
        if entry.lsn > between:
            assert list(check.follow(entry, effect_of(entry))) == []
    assert sorted(check._logs) == [3]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_deleted_topic_takes_all_of_its_partitions_and_what_is_known_of_them_with_it(room, checkpoint):
    room.topic(partitions=2)
    room.topic("other")
    grow(room, 4)
    peer = room.peer()
    peer.send(5, b"a")
    for partition in (3, 5):
        position = [messages.PartitionOffset(partition, 0)]
        peer.ask(messages.CommitOffsets, "g", position, b"i" * 16)
    room.flush()
    if checkpoint:
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
    assert isinstance(room.peer().ask(messages.DeleteTopic, "orders", room.topic_id()), messages.Done)
    assert sorted(room.engine.catalog.stores) == [3]
    assert room.broker.groups.groups["g"].partitions() == {3}
    assert damages(room) == []
    for _ in range(3):
        room.engine.mark()
        room.engine.housekeeping.checkpoint_inline()
    room.restart()
    assert sorted(room.engine.catalog.stores) == [3]
    assert room.topic(partitions=1) == [6]
    assert damages(room) == []


def test_a_transaction_with_messages_for_a_new_partition_keeps_the_topic(room):
    room.topic(partitions=1)
    room.topic("other")
    grow(room, 2)
    peer = room.peer()
    peer.tell(messages.Add, 1, 3, data=frames(b"a"))
    assert peer.ask(messages.DeleteTopic, "orders", room.topic_id()).error == "TransactionConflict"


def test_a_checkpoint_that_was_begun_before_has_the_partitions_of_its_own_lsn(room):
    [partition] = room.topic()
    room.peer().send(partition, b"a")
    housekeeping = room.engine.housekeeping
    housekeeping.request_checkpoint()
    while not housekeeping._stores:
        for job in housekeeping.jobs(room.engine.now()):
            job.run()
            housekeeping.finish(job)
        room.engine.sync()
    grow(room, 3)
    room.peer().send(3, b"new")
    housekeeping.run_inline()
    assert damages(room) == []
    room.restart()
    assert numbers(room) == [1, 2, 3]
    assert room.peer().ask(messages.Fetch, [(3, 0, 0)]).partitions[0].high_watermark == 1
    assert damages(room) == []
