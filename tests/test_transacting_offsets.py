"""Positions of groups that move with a transaction, or do not."""

import pytest

from journal.record import PartitionOffset
from journal.transaction import Cause, State
from tests.broker_room import Room, refused
from tests.transacting_scene import XID, commit, totals
from txbroker import commands


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


class TestOffsets:
    def position(self, room, partition):
        [answer] = room.peer().ask(commands.FetchOffsets, "g", [partition]).offsets
        return answer

    def claim(self, room, partition, member="m"):
        [(_, generation)] = room.peer().ask(commands.ClaimPartitions, "g", member, [partition]).claims
        return generation

    def prepare(self, peer, partition, offset, generation=0, serial=1, xid=XID):
        add_offsets = (serial, "g", [PartitionOffset(partition, offset, generation)])
        assert peer.ask(commands.AddOffsets, *add_offsets) is None
        return peer.ask(commands.Prepare, serial, xid, totals(offsets=1))

    def test_offsets_move_with_the_commit_and_are_pending_from_prepare_on(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        assert isinstance(self.prepare(peer, partition, 2), commands.Done)
        held = self.position(room, partition)
        assert (held.offset, held.pending_by) == (None, f"{peer.session.number}-1 (xid {XID})")
        refused(peer.ask(commands.CommitOffsets, "g", [PartitionOffset(partition, 1)]), "OffsetPending")
        peer.ask(commands.Commit, xid=XID)
        assert self.position(room, partition) == commands.GroupOffset(partition, 2)

    def test_a_consumer_that_lost_its_partition_before_prepare_is_fenced_and_rolled_back(
        self, room, partition
    ):
        peer = room.peer()
        old = self.claim(room, partition)
        assert peer.ask(commands.AddOffsets, 1, "g", [PartitionOffset(partition, 0, old)]) is None
        self.claim(room, partition, "newer")
        said = refused(peer.ask(commands.Prepare, 1, XID, totals(offsets=1)), "GenerationFenced")
        assert "newer" in said
        outcome = peer.ask(commands.AskOutcome, serial=1)
        assert (outcome.state, outcome.cause) == (State.ROLLED_BACK, Cause.REFUSED_ADD)

    def test_a_claim_after_prepare_does_not_undo_the_promise(self, room, partition):
        peer = room.peer()
        old = self.claim(room, partition)
        assert isinstance(self.prepare(peer, partition, 0, old), commands.Done)
        new = self.claim(room, partition, "newer")
        assert isinstance(self.prepare_again(peer), commands.Done)
        assert self.position(room, partition).pending_by
        refused(
            room.peer().ask(commands.CommitOffsets, "g", [PartitionOffset(partition, 0, new)]),
            "OffsetPending",
        )
        assert isinstance(peer.ask(commands.Commit, xid=XID), commands.Committed)
        assert self.position(room, partition).offset == 0

    def prepare_again(self, peer):
        return peer.ask(commands.Prepare, 1, XID, totals(offsets=1))

    def test_a_second_transaction_for_a_held_position_is_rolled_back_at_its_end(self, room, partition):
        peer, other = room.peer(), room.peer()
        other.ask(commands.AddOffsets, 1, "g", [PartitionOffset(partition, 0)])
        self.prepare(peer, partition, 0)
        refused(commit(other, 1, offsets=1), "OffsetPending")
        assert other.ask(commands.AskOutcome, serial=1).state is State.ROLLED_BACK

    def test_offsets_and_holds_survive_a_restart(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a")
        self.prepare(peer, partition, 1)
        room.restart()
        assert self.position(room, partition).pending_by
        room.peer().ask(commands.Commit, xid=XID)
        room.restart()
        assert self.position(room, partition).offset == 1
