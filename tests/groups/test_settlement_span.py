"""Offsets that lie further apart than a set of offsets can span: refused, and nothing of it reaches the fold."""

import pytest
from crc32c import crc32c

from journal.formats.offset_set_bytes import MAX_SPAN
from journal.records.group_entries import GroupPositions, PartitionOffset
from journal.records.record import LogStartMoved
from journal.transaction_states import Totals, TransactionNumber
from tests.groups.test_settlement_judge import ID, XID, prepare, refuses, settle, settled, state
from tests.support.broker_room import Room, frames, refused
from txbroker.errors import LimitExceeded
from txbroker.wire import messages

pytestmark = pytest.mark.slow

END = MAX_SPAN + 200_000


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    peer, run = room.peer(), frames(b"") * 4000
    for _ in range(END // 4000 + 1):
        peer.ask(messages.Send, partition, data=run)
    return partition


def test_a_client_that_is_further_ahead_than_a_set_can_span_is_refused(room, partition):
    settle(room, settled(partition, 0))
    far = settled(partition, END - 1, base=END - 2)
    refuses(room, partition, LimitExceeded, rf"offset {END - 1} .* above offset 1, .*max_ahead", far)
    assert "max_ahead" in refused(prepare(room, far), "TooFarAhead")


def test_so_is_one_that_follows_a_log_whose_start_has_passed_a_held_offset(room, partition):
    settle(room, settled(partition, 0))
    assert isinstance(prepare(room, settled(partition, 3)), messages.Done)
    room.engine.accept(LogStartMoved(partition, END - 10, room.engine.now()))
    far = settled(partition, END - 1, base=END - 10)
    refuses(room, partition, LimitExceeded, "above offset 1, .*max_ahead", far)


@pytest.mark.parametrize("kind", ["prepare", "commit"])
def test_one_add_is_not_judged_by_the_start_of_the_log_that_a_later_one_found(room, partition, kind):
    """The first one was added before the group was set back, the second one after retention passed the position."""
    settle(room, offsets=[PartitionOffset(partition, END - 10)])
    peer = room.peer()
    number = TransactionNumber(max(room.broker.sessions), 1)
    add(room, number, settled(partition, END - 9, base=END - 10))
    settle(room, offsets=[PartitionOffset(partition, 0)])
    room.engine.accept(LogStartMoved(partition, END - 50_000, room.engine.now()))
    add(room, number, settled(partition, END - 49_999, base=END - 50_000))
    totals = Totals(0, 2, crc32c(b""))
    if kind == "prepare":
        answer = peer.ask(messages.Prepare, 1, XID, totals)
    else:
        answer = peer.ask(messages.Commit, 0, 1, None, totals)
    assert "has been rolled back" in refused(answer, "TooFarAhead")
    assert state(room, partition) == (0, "", {})


def add(room, number, what):
    [recorded] = room.broker.consuming.recorded([GroupPositions("g", ID, [], [what])])
    room.engine.transactions.add_offsets(number, "g", [], group_id=ID, settled=recorded.settled)
