"""Test the client's core with the broker itself, with lost answers and other clients that act before the retry.

Walks the table of ``docs/clients.md``, "What happens when an answer is lost": a repeated request hits what was meant
when it was sent first, or nothing.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c

from journal.records.group_entries import PartitionOffset, Retried, Settled
from journal.settings import TopicSettings
from journal.transaction_states import State, Totals
from journal.xid import Xid
from tests.client.lossy_room import LossyRoom, lost
from tests.support.broker_room import frames
from txbroker import errors
from txbroker.wire import messages

XID = Xid(1, b"x", b"")


@pytest.fixture
def broker():
    return LossyRoom()


@pytest.fixture
def room(broker):
    return broker.room


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    room.peer().send(partition, b"a", b"b", b"c")
    return partition


def delete_topic(room, name="orders"):
    done = room.peer().ask(messages.DeleteTopic, name, room.topic_id(name))
    assert isinstance(done, messages.Done)


def delete_group(room):
    assert isinstance(room.peer().ask(messages.DeleteGroup, "g", room.group_id()), messages.Done)


def commit(room, partition, offset):
    move = room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, offset)])
    assert isinstance(move, messages.Done)


def position(room, partition):
    [found] = room.peer().ask(messages.FetchOffsets, "g", [partition]).offsets
    return found.offset


def test_a_deletion_does_not_delete_the_topic_that_was_made_anew(rig, broker, room, partition):
    deleted = lost(rig, broker, messages.DeleteTopic, rig.operations.delete_topic("orders"))
    [anew] = room.topic()
    assert isinstance(room.peer().send(anew, b"acknowledged"), messages.Sent)
    rig.connect()
    assert deleted.result() is None
    assert [m.value for m in rig.run(rig.operations.read("orders", 0, 0, 1000))] == [b"acknowledged"]


def test_a_topic_that_was_made_is_known_by_its_id(rig, broker, room):
    made = lost(rig, broker, messages.CreateTopic, rig.operations.create_topic("t", 2))
    rig.connect()
    assert made.result().id == room.topic_id("t")


@pytest.mark.parametrize("exist_ok", [False, True])
def test_a_topic_that_was_made_deleted_and_made_by_somebody_else_is_theirs(rig, broker, room, exist_ok):
    made = lost(rig, broker, messages.CreateTopic, rig.operations.create_topic("t", 1, exist_ok=exist_ok))
    delete_topic(room, "t")
    room.topic("t")
    rig.connect()
    if exist_ok:
        assert made.result().id == room.topic_id("t")
    else:
        with pytest.raises(errors.TopicExists):
            made.result()


def test_a_topic_that_was_made_and_deleted_is_made_as_another_one(rig, broker, room):
    """Whoever deleted it may not have had an answer either, and must not delete the second one."""
    made = lost(rig, broker, messages.CreateTopic, rig.operations.create_topic("t", 1))
    first = room.topic_id("t")
    delete_topic(room, "t")
    rig.connect()
    assert made.result().id == room.topic_id("t") != first
    again = room.peer().ask(messages.DeleteTopic, "t", first)
    assert again.error == "UnknownTopic"


def test_a_deletion_does_not_delete_the_group_that_was_made_anew(rig, broker, room, partition):
    commit(room, partition, 1)
    deleted = lost(rig, broker, messages.DeleteGroup, rig.operations.delete_group("g"))
    commit(room, partition, 2)
    rig.connect()
    assert deleted.result() is None
    assert position(room, partition) == 2


@pytest.mark.parametrize("kind", [messages.ClaimPartitions, messages.CommitOffsets])
def test_a_group_that_was_made_and_deleted_is_made_as_another_one(rig, broker, room, partition, kind):
    core = rig.core
    if kind is messages.ClaimPartitions:
        request, expected = kind(core.correlation(), "g", "m", [partition]), messages.Claimed
    else:
        request = kind(core.correlation(), "g", [PartitionOffset(partition, 1)])
        expected = messages.Done

    async def ask():
        return await core.request(request, expected)

    asked = lost(rig, broker, kind, ask())
    first = room.group_id()
    delete_group(room)
    rig.connect()
    assert type(asked.result()) is expected
    again = room.peer().ask(messages.DeleteGroup, "g", first)
    assert again.error == "UnknownGroup"
    assert room.group_id() != first


def test_a_group_is_not_moved_back_to_where_it_was_moved_first(rig, broker, room, partition):
    commit(room, partition, 1)
    moved = lost(rig, broker, messages.CommitOffsets, rig.operations.set_offsets("g", "orders", {0: 0}))
    commit(room, partition, 3)
    rig.connect()
    with pytest.raises(errors.OutcomeUnknown, match=r"Look at its positions with group_offsets\(\)"):
        moved.result()
    assert position(room, partition) == 3


def test_a_group_that_stands_where_it_was_moved_has_been_moved(rig, broker, room, partition):
    moved = lost(rig, broker, messages.CommitOffsets, rig.operations.set_offsets("g", "orders", {0: 2}))
    rig.connect()
    assert moved.result() is None
    assert position(room, partition) == 2


def forced(room, partition, why):
    """A transaction with the xid that all here have, prepared and rolled back by an operator."""
    peer, data = room.peer(), frames(b"a")
    peer.tell(messages.Add, 1, partition, data=data)
    assert isinstance(peer.ask(messages.Prepare, 1, XID, Totals(1, 1, crc32c(data))), messages.Done)
    ended = room.peer().ask(messages.Rollback, xid=XID, operator=True, by="ann", why=why)
    assert isinstance(ended, messages.Done)


def test_another_transaction_with_the_same_xid_is_not_forgotten(rig, broker, room, partition):
    forced(room, partition, "first")
    operation = rig.operations.forget_transaction(XID, "ann", "seen to")
    forgotten = lost(rig, broker, messages.Forget, operation)
    forced(room, partition, "second")
    rig.connect()
    assert forgotten.result() is None
    assert room.peer().ask(messages.AskOutcome, xid=XID).why == "second"


def test_the_second_phase_is_answered_as_the_first_time(rig, broker, room, partition):
    peer, data = room.peer(), frames(b"a")
    peer.tell(messages.Add, 1, partition, data=data)
    peer.ask(messages.Prepare, 1, XID, Totals(1, 1, crc32c(data)))
    ended = lost(rig, broker, messages.Commit, rig.operations.end_prepared(XID, True))
    rig.connect()
    assert ended.result() is None
    assert room.peer().ask(messages.AskOutcome, xid=XID).state is State.COMMITTED


def test_a_claim_that_is_repeated_gets_a_newer_generation(rig, broker, room, partition):
    core = rig.core
    request = messages.ClaimPartitions(core.correlation(), "g", "m", [partition])

    async def ask():
        return await core.request(request, messages.Claimed)

    claimed = lost(rig, broker, messages.ClaimPartitions, ask())
    rig.connect()
    assert claimed.result().claims == [(partition, 2)]


def test_a_retry_that_is_repeated_is_counted_once(rig, broker, room, partition):
    """Also if the message has come again meanwhile; the second delivery's failure is another one."""
    core = rig.core

    def request(attempts):
        said = Settled(partition, 0, 0, retried=[Retried(1, attempts, 0, "why")])
        return messages.CommitOffsets(core.correlation(), "g", [], settled=[said])

    async def ask(attempts):
        return await core.request(request(attempts), messages.Done)

    def attempts():
        return room.broker.groups.find("g").settlements[partition].unfinished[1].attempts

    first = lost(rig, broker, messages.CommitOffsets, ask(0))
    assert attempts() == 1
    rig.connect()
    assert isinstance(first.result(), messages.Done)
    assert attempts() == 1
    rig.run(ask(1))
    assert attempts() == 2


def test_a_topic_that_is_there_is_described_by_its_id(rig, broker, room):
    made = rig.run(rig.operations.create_topic("t", 1))
    assert rig.run(rig.operations.topics(["t"])) == [made]
    assert made.settings == TopicSettings()
