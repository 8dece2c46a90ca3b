"""Test that a repair says what it has cut off of streams: claims, deliveries and releases."""

import pytest

from journal.records.record import StreamClaimed, StreamReleased
from journal.records.stream_entries import Delivered
from journal.transactions.unsent import Unsent
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.repair.repair_scene import repaired
from tests.support.engine_room import GroupRoom, damage, run_of

STREAM = b"s" * 16
TOLD = "claims, deliveries or releases of 1 stream of outboxes: rows that are there are delivered again"


def claim(room):
    room.engine.accept(StreamClaimed(STREAM, "table", 1, bytes(16), "m", room.engine.now()))
    return room.engine.next_lsn - 1


def deliver(room, lsn):
    transaction = room.begin()
    transaction.unsent = Unsent([(1, 1, run_of(b"m"), ())], delivered=Delivered(STREAM, lsn, 1))
    transaction.commit()


def release(room, lsn):
    room.engine.accept(StreamReleased(STREAM, 1, room.engine.now()))


@pytest.mark.parametrize("how", [lambda room, lsn: claim(room), deliver, release, None])
def test_what_a_stream_loses_is_named(how):
    room = GroupRoom()
    room.topic()
    lsn = claim(room)
    room.send(b"is damaged")
    if how is None:
        room.send(b"is lost")
    else:
        how(room, lsn)
    room.engine.sync()
    filesystem = room.inner.kill_clone()
    damaged = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)][-2]
    damage(filesystem, damaged.path, damaged.position + 20)
    told = [loss.text for loss in repaired(filesystem).lost if "stream" in loss.text]
    assert told == ([] if how is None else [TOLD])
