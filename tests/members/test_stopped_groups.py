"""A group is moved or deleted with its members: whoever reads for it is fenced, and joins again without what it had."""

import pytest

from journal.records.group_entries import ClaimKind, GroupPositions, PartitionOffset
from journal.records.record import OffsetsCommitted, PartitionsClaimed
from journal.xid import Xid
from tests.members.members_room import MembersRoom, settle
from tests.support.broker_room import recorded, refused
from txbroker.wire import messages
from txbroker.wire.messages import BegunMessages

MIDDLE, NEW = 5, 2
"""Where the group stands in partition 1, and where it is moved to."""
XID = Xid(1, b"x", b"")


@pytest.fixture
def room():
    """Four partitions; of the first, which has ten messages, the group has finished five."""
    made = MembersRoom()
    made.topic("orders", 4)
    made.peer().send(1, *[b"v"] * 10)
    made.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(1, MIDDLE)])
    return made


def member(room, **named):
    found = room.member(**named)
    found.take()
    return found


def move(room, *places, stop=True, expected=(), generation=None, group="g", ask=True):
    """Move the group, partition 1 to :data:`NEW` unless other (partition, offset) are given, as an operator does."""
    known = room.broker.groups.find(group)
    places = places or ((1, NEW),)
    offsets = [
        PartitionOffset(number, at, known.generation(number) if generation is None else generation)
        for number, at in places
    ]
    wanted = list(expected) or [known.position(number) for number, _ in places]
    peer = room.peer()
    how = peer.ask if ask else peer.tell
    return how(messages.CommitOffsets, group, offsets, b"i" * 16, wanted, [], stop)


def delete(room, stop=True):
    return room.peer().ask(messages.DeleteGroup, "g", room.group_id(), stop)


def stop(room, how):
    answer = {"moved": move, "deleted": delete}[how](room)
    assert isinstance(answer, messages.Done), answer


BOTH = pytest.mark.parametrize("how", ["moved", "deleted"])


def position(room, partition=1):
    return room.broker.groups.find("g").position(partition)


# -- the members


@BOTH
def test_members_are_told_that_they_have_lost_everything_and_are_not_known_any_more(room, how):
    first, second = room.member(), room.member()
    settle(room, first, second)
    stop(room, how)
    first.take(), second.take()
    assert (first.owned, first.lost) == ({}, {1, 2})
    assert (second.owned, second.lost) == ({}, {3, 4})
    assert room.broker.coordinator.count == 0
    for kind in (messages.Attend, messages.BeginMessages):
        refused(first.peer.ask(kind, "g", first.number, first.secret, []), "UnknownMember")
    assert isinstance(first.peer.ask(messages.LeaveGroup, "g", first.number, first.secret), messages.Done)


@BOTH
def test_one_that_has_no_request_waiting_hears_it_with_its_next_one(room, how):
    first = member(room)
    room.wait(16)
    assert first.peer.answer(first.asked) is not None
    stop(room, how)
    refused(first.peer.ask(messages.Attend, "g", first.number, first.secret), "UnknownMember")


@BOTH
def test_sessions_have_no_member_of_a_stopped_group_and_nothing_is_looked_after(room, how):
    first = member(room)
    stop(room, how)
    assert not first.peer.session.members
    assert (room.broker.coordinator.tables, room.broker.coordinator._timers) == ({}, {})
    first.peer.leave()
    assert room.broker.coordinator._timers == {}


@BOTH
def test_a_repeated_join_of_a_stopped_member_makes_another_one(room, how):
    first = member(room)
    stop(room, how)
    again = first.peer.ask(messages.JoinGroup, "g", first.nonce, ["orders"])
    assert again.member != first.number


def test_they_join_again_and_go_on_at_the_new_positions(room):
    first, second = room.member(), room.member()
    settle(room, first, second)
    before = dict(first.owned) | second.owned
    assert isinstance(move(room), messages.Done)
    first, second = room.member(), room.member()
    settle(room, first, second)
    assert [sorted(first.owned), sorted(second.owned)] == [[1, 2], [3, 4]]
    assert all(generation > before[each] for each, generation in (first.owned | second.owned).items())
    [known] = first.peer.ask(messages.FetchOffsets, "g", [1]).offsets
    assert (known.offset, known.generation) == (NEW, first.owned[1])
    assert isinstance(first.commit(1, NEW + 1), messages.Done)
    assert position(room) == NEW + 1


def test_after_a_deletion_they_make_the_group_anew(room):
    first = member(room)
    held, was = dict(first.owned), room.group_id()
    stop(room, "deleted")
    first = member(room, start="earliest")
    assert room.group_id() != was
    assert position(room) == 0
    assert all(generation > held[each] for each, generation in first.owned.items())
    assert isinstance(first.commit(1, 1), messages.Done)


@BOTH
def test_a_static_member_is_not_waited_for_and_its_name_is_free(room, how):
    static, other = room.member(name="worker"), room.member()
    settle(room, static, other)
    static.peer.ask(messages.LeaveGroup, "g", static.number, static.secret, False)
    if how == "moved":
        refused(move(room, stop=False), "GroupInUse")
    stop(room, how)
    assert sorted(member(room).owned) == [1, 2, 3, 4]
    assert room.member(name="worker").refused is None


@BOTH
def test_what_they_were_handling_is_no_attempt(room, how):
    first, lost = room.member(), room.member()
    settle(room, first, lost)
    for client, partition in ((first, 1), (lost, 3)):
        begun = BegunMessages(partition, client.owned[partition], [(MIDDLE, 0)])
        client.peer.ask(messages.BeginMessages, "g", client.number, client.secret, [begun])
    lost.peer.ask(messages.LeaveGroup, "g", lost.number, lost.secret)
    settle(room, first)
    stop(room, how)
    again = member(room)
    settle(room, again)
    assert sorted(again.owned) == [1, 2, 3, 4]
    assert not room.broker.groups.find("g").settlements


def test_what_a_lost_member_was_handling_is_no_attempt_once_the_group_was_moved(room):
    first = member(room)
    begun = BegunMessages(1, first.owned[1], [(MIDDLE, 0)])
    first.peer.ask(messages.BeginMessages, "g", first.number, first.secret, [begun])
    first.peer.leave()
    room.wait(6)
    assert room.broker.coordinator.tables["g"].begun
    assert isinstance(move(room), messages.Done)
    assert sorted(member(room).owned) == [1, 2, 3, 4]
    assert not room.broker.groups.find("g").settlements


@BOTH
def test_an_assignment_that_is_computed_meanwhile_gives_nothing_to_anybody(room, how):
    coordinator, computed = room.broker.coordinator, []
    run = coordinator._run_blocking
    coordinator._run_blocking = lambda call, done, failed: computed.append(lambda: done(call()))
    room.member()
    [ready] = computed
    stop(room, how)
    last = room.broker.groups.last_generation
    ready()
    room.wait(1)
    assert room.broker.groups.last_generation == last
    coordinator._run_blocking = run


# -- what they have under way


@BOTH
def test_nothing_that_they_have_under_way_is_committed(room, how):
    first = member(room)
    held = dict(first.owned)
    peer = first.peer
    peer.tell(messages.AddOffsets, 1, "g", [PartitionOffset(1, MIDDLE + 1, held[1])])
    stop(room, how)
    refused(first.commit(1, MIDDLE + 1, generation=held[1]), "GenerationFenced")
    refused(first.commit(2, 0, generation=held[2]), "GenerationFenced")  # this one was not moved
    positions = [GroupPositions("g", b"g" * 16, [PartitionOffset(1, MIDDLE + 1, held[1])])]
    refused(peer.ask(messages.Commit, 0, 1, None, messages.Totals(0, 1, 0)), "GenerationFenced")
    refused(peer.ask(messages.Prepare, 2, XID, positions=positions), "GenerationFenced")
    refused(peer.ask(messages.Commit, 0, 3, positions=positions), "GenerationFenced")
    assert position(room) == (NEW if how == "moved" else None)


@BOTH
def test_their_fetches_are_answered_that_they_are_fenced(room, how):
    first = member(room)
    reader = messages.Reader("g", 0, [first.owned[1]])
    asked = first.peer.tell(messages.Fetch, [(1, 10, 0)], 1 << 20, 60_000_000, 1, [reader])
    room.engine.sync()
    assert first.peer.answer(asked) is None
    stop(room, how)
    [part] = first.peer.answer(asked).partitions
    assert part.error == "GenerationFenced"
    again = first.peer.ask(messages.Fetch, [(1, 0, 0)], 1 << 20, 0, 1, [reader])
    assert [part.error for part in again.partitions] == ["GenerationFenced"]


@BOTH
def test_nobody_has_back_what_it_shows(room, how):
    first = member(room)
    held = dict(first.owned)
    stop(room, how)
    again = room.member(owned=list(held.items()))
    again.owned = dict(held)
    again.attend()
    settle(room, again)
    assert sorted(again.owned) == [1, 2, 3, 4]
    assert all(again.owned[number] > held[number] for number in held)


@BOTH
def test_a_prepared_transaction_refuses_it_and_nobody_is_stopped(room, how):
    first = member(room)
    held = dict(first.owned)
    positions = [GroupPositions("g", b"g" * 16, [PartitionOffset(1, MIDDLE + 1, held[1])])]
    assert isinstance(first.peer.ask(messages.Prepare, 1, XID, positions=positions), messages.Done)
    refused(move(room) if how == "moved" else delete(room), "OffsetPending")
    assert first.take() is None
    assert held == {number: room.generation(number) for number in held}
    assert isinstance(first.peer.ask(messages.Commit, 0, 1, XID), messages.Committed)
    stop(room, how)


# -- what is judged


@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"generation": 0}, "GenerationFenced"),
        ({"generation": 10**6}, "GenerationFenced"),
        ({"expected": [1, 2]}, "InvalidSetting"),
    ],
)
def test_a_move_that_is_refused_stops_nobody(room, choices, error):
    first = member(room)
    held = dict(first.owned)
    refused(move(room, **choices), error)
    refused(move(room, (1, 11)), "OffsetOutOfRange")
    refused(move(room, (99, 0)), "UnknownPartition")
    assert first.take() is None
    assert held == {number: room.generation(number) for number in held}
    assert position(room) == MIDDLE


def test_members_are_stopped_only_for_a_move_with_what_is_expected(room):
    member(room)
    peer = room.peer()
    offsets = [PartitionOffset(1, 0, room.generation(1))]
    refused(peer.ask(messages.CommitOffsets, "g", offsets, stop=True), "InvalidSetting")
    settled = [messages.Settled(2, room.generation(2), 0)]
    both = peer.ask(messages.CommitOffsets, "g", offsets, expected=[MIDDLE], settled=settled, stop=True)
    refused(both, "InvalidSetting")
    assert room.broker.coordinator.count == 1


def test_positions_that_members_move_are_not_compared_but_those_that_nobody_has_are(room):
    member(room)
    room.topic("later", 1)
    room.peer().send(5, b"v")
    message = refused(move(room, (1, NEW), (5, 1), expected=[99, 0]), "PositionMoved")
    assert "later-0" in message
    assert isinstance(move(room, (1, NEW), (5, 1), expected=[99, None]), messages.Done)
    assert (position(room), position(room, 5)) == (NEW, 1)


def test_a_repeated_move_moves_nothing_again(room):
    first = member(room)
    known = room.generation(1)
    assert isinstance(move(room), messages.Done)
    first = member(room)
    assert isinstance(first.commit(1, NEW + 1), messages.Done)
    refused(move(room, generation=known, expected=[MIDDLE]), "GenerationFenced")
    assert position(room) == NEW + 1
    assert first.take() is None


def test_a_partition_that_was_moved_and_that_nobody_had_claimed_is_fenced_too(room):
    room.member("other")
    assert room.broker.groups.find("g").claims == {}
    assert isinstance(move(room), messages.Done)
    refused(room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(1, 9)]), "GenerationFenced")
    assert room.broker.groups.find("g").claims[1].kind is ClaimKind.MEMBER


def test_a_group_that_its_members_have_not_made_yet_is_made_by_the_move(room):
    room.member("other", group="h")
    assert isinstance(move(room, group="h"), messages.Done)
    made = room.broker.groups.find("h")
    assert (made.id, made.position(1), list(made.claims)) == (b"i" * 16, NEW, [1])


def test_a_group_that_nobody_reads_for_is_only_moved(room):
    assert isinstance(move(room), messages.Done)
    assert (position(room), room.broker.groups.find("g").claims) == (NEW, {})
    refused(move(room, (1, 0), expected=[MIDDLE]), "PositionMoved")
    assert isinstance(move(room, group="h"), messages.Done)
    assert room.broker.groups.find("h").claims == {}


def test_consumers_that_name_their_partitions_are_fenced_by_it_and_stay_of_their_kind(room):
    peer = room.peer()
    [claim] = peer.ask(messages.ClaimPartitions, "g", "me", [1]).claims
    assert isinstance(move(room, stop=False), messages.Done)
    assert isinstance(peer.ask(messages.CommitOffsets, "g", [PartitionOffset(1, 3, claim[1])]), messages.Done)
    assert isinstance(move(room), messages.Done)
    refused(peer.ask(messages.CommitOffsets, "g", [PartitionOffset(1, 4, claim[1])]), "GenerationFenced")
    refused(room.member().refused, "GroupKindConflict")
    assert isinstance(peer.ask(messages.ClaimPartitions, "g", "me", [1]), messages.Claimed)


def test_without_it_the_refusal_says_how_many_members_there_are_and_what_to_do(room):
    first, second = room.member(), room.member()
    settle(room, first, second)
    for answer in (move(room, stop=False), delete(room, stop=False)):
        message = refused(answer, "GroupInUse")
        assert "'g' has 2 members now; nothing has changed" in message
        assert "--stop" in message
    assert (first.take(), second.take()) == (None, None)


def test_members_that_did_not_come_back_yet_after_a_restart_are_stopped_as_well(room):
    held = dict(member(room).owned)
    room.restart()
    assert isinstance(move(room), messages.Done)
    again = room.member(owned=list(held.items()))
    settle(room, again, seconds=6)
    assert all(again.owned[number] > held[number] for number in held)


def test_many_claims_take_several_records(monkeypatch, room):
    monkeypatch.setattr("txbroker.broker.groups.consumer_groups.MAX_REQUEST_ENTRIES", 3)
    member(room)
    appended = recorded(room)
    assert isinstance(move(room), messages.Done)
    claims = [each for each in appended if isinstance(each, PartitionsClaimed)]
    assert [[number for number, _ in each.claims] for each in claims] == [[1, 2, 3], [4]]


# -- crash windows


def test_the_claims_come_before_the_move_and_the_move_has_their_generation(room):
    member(room)
    appended = recorded(room)
    assert isinstance(move(room), messages.Done)
    claim, moved = appended
    assert isinstance(claim, PartitionsClaimed)
    assert isinstance(moved, OffsetsCommitted)
    assert dict(claim.claims)[1] == moved.offsets[0].generation
    assert sorted(dict(claim.claims)) == [1, 2, 3, 4]


def come_back(room, held):
    """Start the broker after a crash, and join with what the member had; return it once it has what it gets."""
    room.restart()
    again = room.member(owned=list(held.items()))
    again.owned = dict(held)
    again.attend()
    settle(room, again, seconds=6)
    assert sorted(again.owned) == [1, 2, 3, 4]
    return again


@BOTH
def test_a_stop_that_was_not_forced_has_stopped_nobody(room, how):
    first = member(room)
    held = dict(first.owned)
    if how == "moved":
        asked = move(room, ask=False)
    else:
        asked = room.peer().tell(messages.DeleteGroup, "g", room.group_id(), True)
    assert asked
    assert first.peer.answer(first.asked) is None, "it was told of what a crash undoes"
    room.filesystem = room.filesystem.crash_clone(0, 0.0)
    assert come_back(room, held).owned == held
    assert position(room) == MIDDLE


def test_between_the_claims_and_the_move_the_group_stands_where_it_was(room):
    held = dict(member(room).owned)
    accept, copies = room.engine.accept, []

    def accept_and_copy(record, *more):
        if isinstance(record, OffsetsCommitted):
            room.engine.sync()
            copies.append(room.filesystem.crash_clone(0, 0.0))
        return accept(record, *more)

    room.engine.accept = accept_and_copy
    assert isinstance(move(room), messages.Done)
    [room.filesystem] = copies
    again = come_back(room, held)
    assert position(room) == MIDDLE
    assert all(again.owned[number] > held[number] for number in held)
    refused(again.commit(1, MIDDLE + 1, generation=held[1]), "GenerationFenced")


@pytest.mark.parametrize("how", ["killed", "checkpoint"])
def test_after_a_restart_nobody_has_back_what_was_stopped(room, how):
    held = dict(member(room).owned)
    assert isinstance(move(room), messages.Done)
    crash(room, how)
    again = come_back(room, held)
    assert position(room) == NEW
    assert all(again.owned[number] > held[number] for number in held)
    refused(again.commit(1, MIDDLE + 1, generation=held[1]), "GenerationFenced")


@pytest.mark.parametrize("how", ["killed", "checkpoint"])
def test_after_a_restart_nobody_has_back_what_was_deleted(room, how):
    held = dict(member(room).owned)
    assert isinstance(delete(room), messages.Done)
    crash(room, how)
    room.restart()
    refused(
        room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(1, 9, held[1])]), "GenerationFenced"
    )
    again = come_back(room, held)
    assert all(again.owned[number] > held[number] for number in held)
    refused(again.commit(1, MIDDLE + 1, generation=held[1]), "GenerationFenced")


def crash(room, how):
    if how == "checkpoint":
        room.engine.housekeeping.checkpoint_inline()
    room.filesystem = room.filesystem.crash_clone(0, 0.0)
