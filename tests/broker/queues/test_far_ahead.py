"""Test queues of which one message is not acknowledged for long, while others behind it are.

Seen to fail: with the bound of an encoded set as the distance to which messages are delivered.
"""

from __future__ import annotations

import pytest

from journal.check import Level, verify
from journal.formats.offset_set_bytes import MAX_SPAN, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Settled
from journal.records.queue_entries import QUEUE_GROUP
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import SELF, Scene, acknowledged, framed, values_of
from txbroker.queues import level
from txbroker.wire import messages
from txbroker.wire.messages import MAX_TAKEN

pytestmark = pytest.mark.slow
AT_ONCE = 4000


@pytest.fixture
def far() -> tuple[Scene, int, int]:
    """A queue whose first message nobody acknowledges, and all others but the last ten."""
    scene = Scene()
    queue = scene.queue()
    data = framed("q", *[b""] * AT_ONCE)
    count = 0
    while count < MAX_SPAN + 3 * AT_ONCE:
        sent = scene.peer.ask(messages.Send, SELF, data=data)
        assert isinstance(sent, messages.Sent), sent
        scene.take(queue, MAX_TAKEN)
        offsets = OffsetSet()
        offsets.add_range(max(count, 1), count + AT_ONCE)
        base = offsets.first
        settled = [Settled(queue, 0, base, encode_offsets(offsets, base))]
        done = scene.peer.ask(messages.CommitOffsets, QUEUE_GROUP, [], settled=settled)
        assert isinstance(done, messages.Done), done
        count += AT_ONCE
    scene.publish("q", *[b"%d" % n for n in range(10)])
    return scene, queue, count


def kept(scene: Scene, queue: int) -> OffsetSet:
    return scene.room.broker.groups.groups[QUEUE_GROUP].settlements[queue].finished


def test_a_message_that_nobody_acknowledges_stops_none_of_a_million_behind_it(far):
    scene, queue, count = far
    assert scene.counts() == (11, 10, 1, 0)
    assert scene.taken(queue) == [b"%d" % n for n in range(10)]
    assert isinstance(scene.acknowledge(queue, count + 3), messages.Done)
    assert kept(scene, queue).end == count + 4
    scene.room.engine.housekeeping.checkpoint_inline()
    assert not list(verify(scene.room.filesystem.kill_clone(), Level.DEEP))
    scene.restart()
    assert kept(scene, queue).end == count + 4
    answer = scene.take(queue)
    assert values_of(answer, scene.peer) == [b"", *[b"%d" % n for n in range(10) if n != 3]]
    both = [
        Settled(queue, 0, offset, encode_offsets(OffsetSet.from_bits(offset, 1), offset))
        for offset in (0, count)
    ]
    done = scene.peer.ask(messages.CommitOffsets, QUEUE_GROUP, [], settled=both)
    assert isinstance(done, messages.Done), done
    assert scene.room.broker.groups.groups[QUEUE_GROUP].position(queue) == count + 1


def test_they_are_acknowledged_in_a_transaction_that_is_prepared_and_survives_starts(far):
    scene, queue, count = far
    scene.taken(queue)
    xid = Xid(1, b"order 7", b"")
    both = [
        GroupPositions(QUEUE_GROUP, b"", [], [acknowledged(queue, n)[0].settled[0] for n in (0, count + 1)])
    ]
    assert isinstance(
        scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), positions=both), messages.Done
    )
    scene.restart()
    assert scene.counts() == (11, 9, 0, 2)
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    assert scene.counts()[0] == 9
    assert scene.taken(queue) == [b"%d" % n for n in range(10) if n != 1]


def test_how_far_behind_messages_are_delivered_is_bounded(monkeypatch):
    monkeypatch.setattr(level, "AHEAD", 5)
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", *[b"%d" % n for n in range(8)])
    assert len(scene.taken(queue)) == 5
    assert isinstance(scene.acknowledge(queue, 1, 2), messages.Done)
    assert scene.taken(queue) == []
    assert isinstance(scene.acknowledge(queue, 0), messages.Done)
    assert scene.taken(queue) == [b"5", b"6", b"7"]
