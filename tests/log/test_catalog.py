"""Test topics and partitions: what is judged, how the fold changes, and that no number is given twice.

Seen to fail: with the next number taken from the topics that there are, a deleted topic's number comes back; with
the base offset of a replayed record not compared, a missing record goes unnoticed.
"""

import pytest

from journal.constants import MAX_PARTITIONS_PER_TOPIC
from journal.engine.settings import JournalSettings
from journal.errors import (
    CorruptJournal,
    InvalidName,
    InvalidSetting,
    LimitExceeded,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from journal.random_id import new_id
from journal.records.record import (
    LogStartMoved,
    Mark,
    Messages,
    PartitionsAdded,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from journal.settings import TopicSettings
from tests.support.builders import Place, frames

ONE = frames(b"a", b"b")


@pytest.fixture
def place():
    return Place()


def create(place, name, partitions=1, **settings):
    catalog = place.engine.catalog
    place.engine.accept(
        catalog.judge_creation(name, partitions, TopicSettings(**settings), place.engine.now(), new_id())
    )
    return [store.number for store in catalog.topic(name).partitions]


def grow(place, name, partitions, **changes):
    catalog = place.engine.catalog
    topic = catalog.topic(name)
    place.engine.accept(catalog.judge_alteration(topic, changes, place.engine.now(), partitions))
    return [store.number for store in topic.partitions]


def described(place):
    catalog = place.engine.catalog
    topics = {
        name: (t.settings, t.created, [(s.number, s.topic, s.index, s.settings) for s in t.partitions])
        for name, t in catalog.topics.items()
    }
    return topics, sorted(catalog.stores), catalog.next_partition


def test_a_topic_and_its_partitions_are_found_by_name_and_number(place):
    place.clock.advance(77)
    assert create(place, "orders", 3, segment_bytes=1 << 20) == [3, 4, 5]
    topic = place.engine.catalog.topic("orders")
    assert (topic.settings.segment_bytes, topic.created) == (1 << 20, place.engine.now())
    assert [(store.topic, store.index) for store in topic.partitions] == [
        ("orders", 0),
        ("orders", 1),
        ("orders", 2),
    ]
    assert place.engine.catalog.store(4) is topic.partitions[1]


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "error"),
    [
        ("t", 1, {}, TopicExists),
        ("../etc", 1, {}, InvalidName),
        ("", 1, {}, InvalidName),
        ("a/b", 1, {}, InvalidName),
        ("x" * 201, 1, {}, InvalidName),
        ("x", 0, {}, InvalidSetting),
        ("x", -1, {}, InvalidSetting),
        ("x", MAX_PARTITIONS_PER_TOPIC + 1, {}, InvalidSetting),
        ("x", 1, {"segment_bytes": 1}, InvalidSetting),
        ("x", 1, {"force_messages": 0}, InvalidSetting),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_nothing_changed(place, name, partitions, settings, error):
    before = described(place)
    with pytest.raises(error, match=r"[Nn]othing was (made or )?changed"):
        create(place, name, partitions, **settings)
    assert described(place) == before


def test_partitions_have_a_limit_in_all():
    place = Place(JournalSettings(file_bytes=1 << 20, max_partitions=5))
    create(place, "x", 3)
    with pytest.raises(LimitExceeded, match="would make 6 in all, the limit is 5"):
        create(place, "y")
    place.engine.accept(TopicDeleted("x", 0))
    create(place, "y", 3)


def test_what_is_not_there_is_refused_by_name_and_number(place):
    with pytest.raises(UnknownTopic, match="'x'"):
        place.engine.catalog.topic("x")
    with pytest.raises(UnknownPartition, match="99"):
        place.engine.catalog.store(99)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_number_is_never_given_again_though_the_name_may_be(place, checkpoint):
    assert create(place, "x", 2) == [3, 4]
    place.engine.accept(TopicDeleted("x", 0))
    with pytest.raises(UnknownPartition):
        place.engine.catalog.store(4)
    place.restart(checkpoint)
    assert create(place, "x", 1) == [5]


def test_the_stores_of_a_deleted_topic_wait_for_the_checkpoints(place):
    stores = list(place.engine.catalog.topic("t").partitions)
    place.engine.accept(TopicDeleted("t", 0))
    assert place.engine.catalog.deleted == stores


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_topic_that_got_more_partitions_has_several_ranges_of_numbers(place, checkpoint):
    assert grow(place, "t", 3) == [1, 2, 3]
    create(place, "x")
    assert grow(place, "t", 5, force_messages=7) == [1, 2, 3, 5, 6]
    place.engine.append(place.engine.catalog.stores[6], ONE, 2)
    place.engine.sync()
    before = described(place)
    place.restart(checkpoint)
    assert described(place) == before
    topic = place.engine.catalog.topics["t"]
    assert [store.index for store in topic.partitions] == list(range(5))
    assert {store.settings for store in topic.partitions} == {topic.settings}
    assert topic.ranges == [(1, 2), (3, 1), (5, 2)]
    assert place.values(6) == [b"a", b"b"]
    assert grow(place, "t", 6) == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_topic_that_got_more_partitions_is_deleted_with_all_of_them(place, checkpoint):
    grow(place, "t", 3)
    create(place, "x")
    stores = list(place.engine.catalog.topic("t").partitions)
    place.engine.accept(TopicDeleted("t", 0))
    assert place.engine.catalog.deleted == stores
    place.restart(checkpoint)
    assert sorted(place.engine.catalog.stores) == [4]
    assert create(place, "t") == [5]


@pytest.mark.parametrize(
    ("partitions", "error", "said"),
    [
        (1, InvalidSetting, "which has 2: a topic gets more of them, never fewer"),
        (-1, InvalidSetting, "never fewer"),
        (MAX_PARTITIONS_PER_TOPIC + 1, InvalidSetting, f"{MAX_PARTITIONS_PER_TOPIC} are allowed"),
        (4, LimitExceeded, "would make 4 in all, the limit is 3"),
    ],
)
def test_a_number_of_partitions_that_cannot_be_is_refused_and_nothing_changed(partitions, error, said):
    place = Place(JournalSettings(file_bytes=1 << 20, max_partitions=3))
    before = described(place)
    with pytest.raises(error, match=said) as caught:
        grow(place, "t", partitions)
    assert "nothing was changed" in str(caught.value).lower()
    assert described(place) == before


@pytest.mark.parametrize("checkpoint", [False, True])
def test_all_of_it_is_the_same_after_a_restart(place, checkpoint):
    create(place, "orders", 2, retention_age=5_000_000)
    create(place, "gone")
    place.engine.accept(TopicDeleted("gone", 0))
    place.engine.append(place.engine.catalog.stores[1], ONE, 2)
    place.engine.append(place.engine.catalog.stores[4], ONE, 2)
    place.engine.sync()
    place.engine.accept(LogStartMoved(1, 1, 0))
    before = described(place)
    place.restart(checkpoint)
    assert described(place) == before
    assert place.values(4) == [b"a", b"b"]
    assert place.engine.catalog.stores[1].start_offset == 1


def test_the_wall_clock_at_the_start_is_kept_for_people(place):
    catalog = place.engine.catalog
    assert catalog.wall_offset == place.clock.wall() - place.engine.now()


@pytest.mark.parametrize(
    "record",
    [
        TopicCreated("x", 9, 1, TopicSettings(), 0),
        TopicCreated("x", 1, 1, TopicSettings(), 0),
        TopicAltered("t", TopicSettings(), 0, PartitionsAdded(2, 4, 1)),  # skips a number
        TopicAltered("t", TopicSettings(), 0, PartitionsAdded(2, 2, 1)),  # overlaps
        TopicAltered("t", TopicSettings(), 0, PartitionsAdded(1, 3, 1)),  # an index that there is
        TopicAltered("t", TopicSettings(), 0, PartitionsAdded(3, 3, 1)),  # skips an index
        Mark(0),
    ],
)
def test_a_record_that_does_not_follow_from_those_before_it_is_corrupt(place, record):
    before = described(place)
    with pytest.raises(CorruptJournal):
        place.engine.catalog.apply(99, record, b"")
    assert described(place) == before


@pytest.mark.parametrize("base", [1, 3])
def test_replayed_messages_that_leave_a_gap_or_overlap_are_corrupt(place, base):
    place.engine.append(place.engine.catalog.stores[1], ONE, 2)
    with pytest.raises(CorruptJournal):
        place.engine.catalog.apply(99, Messages(1, base, 2, 0), ONE)


def test_replayed_messages_that_a_log_holds_already_change_nothing(place):
    place.engine.append(place.engine.catalog.stores[1], ONE, 2)
    place.engine.catalog.apply(99, Messages(1, 0, 2, 0), ONE)
    place.engine.sync()
    assert place.values() == [b"a", b"b"]


def test_replay_makes_room_once_when_memory_runs_out():
    place = Place(JournalSettings(file_bytes=1 << 20, pool_bytes=1 << 20))
    large = frames(b"x" * (300 << 10))
    for _ in range(6):
        store = place.engine.catalog.stores[1]
        place.engine.append(store, large, 1)
        place.engine.sync()
        place.engine.want_flush()
        place.engine.housekeeping.run_inline()
    place.restart()
    assert len(place.values()) == 6
