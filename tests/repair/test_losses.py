"""Test that lost records are named by what they did, each in words of its own."""

from journal.check import JournalEntry, walk_journal
from journal.records.record import LogStartMoved, TopicDeleted
from journal.repair.losses import LostRecords, Names
from tests.support.engine_room import Room


def told(room, kept):
    """What is said of the records behind the first ``kept`` ones of a room's journal."""
    entries = [each for each in walk_journal(room.inner) if isinstance(each, JournalEntry)]
    names = Names()
    for entry in entries[:kept]:
        names.follow(entry)
    lost = LostRecords(names)
    for entry in entries[kept:]:
        lost.follow(entry)
    return [(loss.text, loss.what.topic, loss.what.partition) for loss in lost.told()]


def records_of(room):
    room.engine.sync()
    return sum(isinstance(each, JournalEntry) for each in walk_journal(room.inner))


def test_what_became_of_topics_and_of_the_starts_of_their_logs_is_named():
    room = Room()
    room.topic("t", 2)
    room.topic("gone", 1)
    room.send(b"a", number=2)
    kept, engine = records_of(room), room.engine
    engine.accept(
        engine.catalog.judge_alteration(engine.catalog.topics["t"], {"force_messages": 7}, engine.now())
    )
    engine.accept(engine.catalog.judge_alteration(engine.catalog.topics["t"], {}, engine.now(), 4))
    room.send(b"b", number=5)
    engine.accept(LogStartMoved(2, 0, engine.now()))
    engine.accept(LogStartMoved(2, 1, engine.now()))
    engine.accept(TopicDeleted("gone", engine.now()))
    engine.sync()
    assert told(room, kept) == [
        ("t-3: offset 0 (1 message)", "t", 3),
        ("the change of the settings of topic 't': it has those from before", None, None),
        (
            "the addition of 2 partitions to topic 't', from t-2 on: it has the partitions and settings from before",
            None,
            None,
        ),
        ("the deletion of topic 'gone': it is there again", None, None),
        ("t-1: its start at offset 1; messages below may be there again", "t", 1),
    ]
