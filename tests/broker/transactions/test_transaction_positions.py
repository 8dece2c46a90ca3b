"""Test positions of groups that move with a transaction."""

import pytest

from journal.records.group_entries import PartitionOffset
from journal.transaction_states import Cause, State
from tests.broker.transactions.transaction_scene import XID, commit, totals
from tests.support.broker_room import Room, refused
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


class TestOffsets:
    def position(self, room, partition):
        [answer] = room.peer().ask(messages.FetchOffsets, "g", [partition]).offsets
        return answer

    def claim(self, room, partition, member="m"):
        [(_, generation)] = room.peer().ask(messages.ClaimPartitions, "g", member, [partition]).claims
        return generation

    def prepare(self, peer, partition, offset, generation=0, serial=1, xid=XID):
        add_offsets = (serial, "g", [PartitionOffset(partition, offset, generation)])
        assert peer.ask(messages.AddOffsets, *add_offsets) is None
        return peer.ask(messages.Prepare, serial, xid, totals(offsets=1))

    def test_offsets_move_with_the_commit_and_are_pending_from_prepare_on(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        assert isinstance(self.prepare(peer, partition, 2), messages.Done)
        held = self.position(room, partition)
        assert (held.offset, held.pending_by) == (None, f"{peer.session.number}-1 (xid {XID})")
        refused(peer.ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 1)]), "OffsetPending")
        peer.ask(messages.Commit, xid=XID)
        assert self.position(room, partition) == messages.GroupOffset(partition, 2)

    def test_a_consumer_that_lost_its_partition_before_prepare_is_fenced_and_rolled_back(
        self, room, partition
    ):
        peer = room.peer()
        old = self.claim(room, partition)
        assert peer.ask(messages.AddOffsets, 1, "g", [PartitionOffset(partition, 0, old)]) is None
        self.claim(room, partition, "newer")
        said = refused(peer.ask(messages.Prepare, 1, XID, totals(offsets=1)), "GenerationFenced")
        assert "newer" in said
        outcome = peer.ask(messages.AskOutcome, serial=1)
        assert (outcome.state, outcome.cause) == (State.ROLLED_BACK, Cause.REFUSED_ADD)

    def test_a_claim_after_prepare_does_not_undo_the_promise(self, room, partition):
        peer = room.peer()
        old = self.claim(room, partition)
        assert isinstance(self.prepare(peer, partition, 0, old), messages.Done)
        new = self.claim(room, partition, "newer")
        assert isinstance(self.prepare_again(peer), messages.Done)
        assert self.position(room, partition).pending_by
        refused(
            room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 0, new)]),
            "OffsetPending",
        )
        assert isinstance(peer.ask(messages.Commit, xid=XID), messages.Committed)
        assert self.position(room, partition).offset == 0

    def prepare_again(self, peer):
        return peer.ask(messages.Prepare, 1, XID, totals(offsets=1))

    def test_a_second_transaction_for_a_held_position_is_rolled_back_at_its_end(self, room, partition):
        peer, other = room.peer(), room.peer()
        other.ask(messages.AddOffsets, 1, "g", [PartitionOffset(partition, 0)])
        self.prepare(peer, partition, 0)
        refused(commit(other, 1, offsets=1), "OffsetPending")
        assert other.ask(messages.AskOutcome, serial=1).state is State.ROLLED_BACK

    def test_offsets_and_holds_survive_a_restart(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a")
        self.prepare(peer, partition, 1)
        room.restart()
        assert self.position(room, partition).pending_by
        room.peer().ask(messages.Commit, xid=XID)
        room.restart()
        assert self.position(room, partition).offset == 1
