"""Altering a topic through the broker's door: these settings and no others, for good, and from then on."""

import pytest

from journal.check.verification import verify
from journal.engine.settings import JournalSettings
from journal.settings import TopicSettings
from tests.support.broker_room import Room, frames
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.wire import messages

HOUR = 3600 * 1_000_000


@pytest.fixture
def room():
    return Room(max_frame=1 << 20)


def alter(room, name="orders", topic_id=None, **changes):
    topic_id = room.topic_id(name) if topic_id is None else topic_id
    return room.peer().ask(messages.AlterTopic, name, topic_id, changes)


def settings(room, name="orders"):
    [topic] = room.peer().ask(messages.DescribeTopics, [name]).topics
    return topic.settings


def test_the_named_settings_change_and_the_others_stay_also_after_a_restart_and_a_checkpoint(room):
    room.topic(retention_bytes=1 << 20, force_messages=9)
    answer = alter(room, retention_bytes=None, segment_bytes=1 << 16)
    wanted = TopicSettings(force_messages=9, segment_bytes=1 << 16)
    assert answer.topics[0].settings == wanted
    room.restart()
    assert settings(room) == wanted
    room.engine.housekeeping.checkpoint_inline()
    alter(room, force_messages=10)
    room.restart()
    assert settings(room).force_messages == 10
    assert {store.settings.force_messages for store in room.engine.catalog.topics["orders"].partitions} == {
        10
    }


def test_a_checkpoint_has_the_settings_of_its_own_lsn_for_topic_and_logs(room):
    [partition] = room.topic()
    room.peer().send(partition, b"a")
    housekeeping = room.engine.housekeeping
    housekeeping.request_checkpoint()
    while not housekeeping._stores:
        for job in housekeeping.jobs(room.engine.now()):
            job.run()
            housekeeping.finish(job)
        room.engine.sync()
    alter(room, force_messages=77)
    room.engine.housekeeping.run_inline()
    assert list(verify(room.filesystem)) == []


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({}, "InvalidSetting", "no setting"),
        ({"force_messages": 0}, "InvalidSetting", "force_messages"),
        ({"force_messages": None}, "InvalidSetting", "force_messages"),
        ({"colour": 1}, "InvalidSetting", "colour"),
        ({"max_message_bytes": 1 << 21}, "InvalidSetting", "max_frame"),
        ({"force_messages": 7, "segment_bytes": 1}, "InvalidSetting", "segment_bytes"),
    ],
)
def test_what_cannot_be_a_setting_changes_nothing(room, changes, error, said):
    room.topic()
    refused = alter(room, **changes)
    assert (refused.error, settings(room)) == (error, TopicSettings())
    assert said in refused.message
    assert "nothing" in refused.message.lower()


def test_a_setting_that_the_broker_would_not_take_any_more_hinders_no_change_of_another(room):
    room.topic(max_message_bytes=1 << 20)
    room.settings = BrokerSettings(max_frame=1 << 16)
    room.restart()
    assert alter(room, force_messages=7).topics[0].settings.force_messages == 7


def test_a_topic_made_anew_under_the_name_is_not_altered(room):
    room.topic()
    assert alter(room, topic_id=b"x" * 16, force_messages=7).error == "UnknownTopic"
    assert alter(room, "nothing", b"x" * 16, force_messages=7).error == "UnknownTopic"
    assert settings(room) == TopicSettings()


def test_the_outcome_archive_cannot_be_altered():
    room = Room(JournalSettings(low_water_bytes=0, outcome_archive=True))
    [own] = [topic for topic in room.engine.catalog.topics.values() if topic.partitions[0].internal]
    assert alter(room, own.name, own.id, force_messages=7).error == "InvalidName"


def test_a_shorter_force_interval_holds_for_messages_that_wait_already():
    room = Room(JournalSettings(low_water_bytes=0, checkpoint_interval=1 << 50))
    [partition] = room.topic(force_interval=100 * HOUR)
    room.peer().send(partition, b"waits")
    store = room.engine.catalog.stores[partition]
    room.engine.housekeeping.run_inline()
    alter(room, force_interval=HOUR)
    room.clock.advance(HOUR - 1)
    room.engine.housekeeping.run_inline()
    assert store.unflushed_messages == 1
    room.clock.advance(2)
    room.engine.housekeeping.run_inline()
    assert store.unflushed_messages == 0


def test_a_lower_largest_message_holds_for_new_ones_only(room):
    [partition] = room.topic()
    peer = room.peer()
    peer.send(partition, bytes(5000))
    alter(room, max_message_bytes=1000)
    assert peer.send(partition, bytes(5000)).error == "MessageTooLarge"
    assert peer.ask(messages.Fetch, [(partition, 0, 0)]).partitions[0].length == len(frames(bytes(5000)))


def test_an_alteration_to_what_is_there_writes_nothing(room):
    room.topic(force_messages=7)
    before = room.engine.last_lsn
    assert alter(room, force_messages=7).topics[0].settings.force_messages == 7
    assert room.engine.last_lsn == before
