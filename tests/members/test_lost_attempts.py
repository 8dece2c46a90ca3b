"""What a lost member had begun counts as an attempt, in the record that claims the partition for another."""

import pytest

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import (
    STOPPED,
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
)
from journal.records.record import PartitionsClaimed
from journal.xid import Xid
from tests.members.members_room import MembersRoom, settle
from tests.support.broker_room import refused
from txbroker.wire import messages
from txbroker.wire.messages import MAX_BEGUN, BegunMessages

LOST = 6
"""Seconds after which a member whose connection is gone is lost, with those that it takes to look."""
RULES = RetryRules(3, 1_000_000, 4_000_000, Ending.DEAD_LETTER)


@pytest.fixture
def room():
    return filled(MembersRoom())


def filled(made):
    made.topic("orders", 2)
    peer = made.peer()
    for _ in range(10):
        peer.send(1, b"v")
    assert isinstance(peer.ask(messages.AlterGroup, "g", GroupSettings(RULES), ["retry"]), messages.Done)
    return made


def member(room, **named):
    found = room.member(**named)
    found.take()
    return found


def begin(client, *offsets, attempts=0, together=False, partition=1):
    """Say that a member handles these messages, and what it does not handle any more."""
    begun = BegunMessages(
        partition, client.owned[partition], [(each, attempts) for each in offsets], together
    )
    return client.peer.ask(messages.BeginMessages, client.group, client.number, client.secret, [begun])


def lose(room, client, **named):
    """Have a member be lost, and another one take its place."""
    client.peer.leave()
    room.wait(LOST)
    return member(room, **named)


def known(room, partition=1):
    """Details of unfinished offsets: offset → (attempts, due in s, reason)."""
    settlement = room.broker.groups.find("g").settlements.get(partition)
    now = room.engine.now()
    if settlement is None:
        return {}
    return {
        each.offset: (each.attempts, max(0.0, (each.due - now) / 1e6), each.reason)
        for each in settlement.unfinished.values()
    }


def attempts(room):
    return {offset: count for offset, (count, _, _) in known(room).items()}


def finishes(client, *offsets):
    finished = OffsetSet()
    for each in offsets:
        finished.add(each)
    return Settled(1, client.owned[1], 0, encode_offsets(finished, 0))


def finish(client, *offsets):
    done = client.peer.ask(messages.CommitOffsets, "g", [], settled=[finishes(client, *offsets)])
    assert isinstance(done, messages.Done), done


def test_a_begun_message_of_a_lost_member_counts_an_attempt_and_pauses_as_the_rules_say(room):
    first = member(room)
    assert isinstance(begin(first, 0), messages.Done)
    second = lose(room, first)
    [(offset, (count, pause, reason))] = known(room).items()
    assert (offset, count) == (0, 1)
    assert 0 < pause <= 1.0
    assert reason.startswith("its consumer was lost while it handled this message: ")
    begin(second, 0, attempts=1)
    lose(room, second)
    assert attempts(room) == {0: 2}


def test_it_is_in_the_record_of_the_claim_and_holds_after_a_restart(room):
    first = member(room)
    begin(first, 0)
    appended = []
    before = room.engine.accept

    def accept(record, *more):
        appended.append(record)
        return before(record, *more)

    room.engine.accept = accept
    lose(room, first)
    [claim] = [each for each in appended if isinstance(each, PartitionsClaimed)]
    [settled] = claim.settled
    assert (settled.partition, settled.unfinished[0].offset, settled.unfinished[0].attempts) == (1, 0, 1)
    assert (settled.partition, settled.generation) in claim.claims
    assert [each for each in appended if not isinstance(each, PartitionsClaimed)] == []
    room.engine.accept = before
    was = known(room)
    room.restart()
    assert attempts(room) == {0: 1}
    assert list(known(room)) == list(was)


@pytest.mark.parametrize("ending", Ending)
def test_the_last_attempt_ends_as_the_rules_say(room, ending):
    room.peer().ask(messages.AlterGroup, "g", GroupSettings(RetryRules(1, 0, 0, ending)), ["retry"])
    first = member(room)
    begin(first, 0)
    lose(room, first)
    room.wait(1)
    group, topics = room.broker.groups.find("g"), room.engine.catalog.topics
    letters = topics["orders.dead"].partitions[0].high_watermark if "orders.dead" in topics else 0
    assert (group.position(1), letters) == {
        Ending.DEAD_LETTER: (1, 1),
        Ending.DROP: (1, 0),
        Ending.STOP: (0, 0),
    }[ending]
    if ending is Ending.STOP:
        assert group.settlements[1].unfinished[0].due == STOPPED


def test_what_is_not_handled_any_more_when_it_is_lost_counts_nothing(room):
    first = member(room)
    begin(first, 0, 1)
    begin(first, 2)
    lose(room, first)
    assert attempts(room) == {2: 1}


def test_a_member_that_leaves_or_releases_counts_nothing(room):
    first = member(room)
    begin(first, 0)
    first.peer.ask(messages.LeaveGroup, "g", first.number, first.secret)
    second = member(room)
    begin(second, 0)
    third = room.member()
    settle(room, second, third)
    third.peer.ask(messages.LeaveGroup, "g", third.number, third.secret)
    settle(room, second)
    assert known(room) == {}


def test_what_is_finished_or_reported_meanwhile_counts_once(room):
    first = member(room)
    begin(first, 0, 1, 2)
    finish(first, 0)
    said = Settled(1, first.owned[1], 0, retried=[Retried(1, after=0, reason="no")])
    assert isinstance(first.peer.ask(messages.CommitOffsets, "g", [], settled=[said]), messages.Done)
    second = lose(room, first)
    assert attempts(room) == {1: 1, 2: 1}
    assert known(room)[1][2] == "no"
    begin(second, 1, attempts=0)  # a message with fewer attempts than the group has counted
    lose(room, second)
    assert attempts(room) == {1: 1, 2: 1}


def test_what_a_prepared_transaction_holds_counts_nothing(room):
    first = member(room)
    begin(first, 0, 1)
    positions = [GroupPositions("g", bytes(16), [], [finishes(first, 0)])]
    xid = Xid(1, b"x", b"")
    prepared = first.peer.ask(messages.Prepare, 1, xid, None, 0, [], positions)
    assert not isinstance(prepared, messages.Refused), prepared
    lose(room, first)
    assert attempts(room) == {1: 1}
    assert isinstance(room.peer().ask(messages.Rollback, xid=xid), messages.Done)
    assert attempts(room) == {1: 1}


def test_what_a_prepared_position_passes_counts_nothing(room):
    first = member(room)
    begin(first, 2, 5)
    positions = [GroupPositions("g", bytes(16), [PartitionOffset(1, 4, first.owned[1])])]
    prepared = first.peer.ask(messages.Prepare, 1, Xid(1, b"x", b""), None, 0, [], positions)
    assert not isinstance(prepared, messages.Refused), prepared
    lose(room, first)
    assert attempts(room) == {5: 1}


def test_in_a_group_that_has_begun_nowhere_nothing_is_counted(room):
    first = member(room, start=None)
    begin(first, 0)
    lose(room, first, start=None)
    assert room.broker.groups.find("g").position(1) is None


def test_a_batch_counts_for_nobody_and_its_messages_are_told_to_come_alone(room):
    first = member(room)
    begin(first, 0, 1, 2, together=True)
    finish(first, 1)
    second = lose(room, first)
    assert attempts(room) == {0: 0, 2: 0}
    assert {due for _, due, _ in known(room).values()} == {0.0}
    reader = messages.Reader("g", 0, [second.owned[1]])
    fetched = second.peer.ask(messages.Fetch, [(1, 0, 0)], 1 << 20, 0, readers=[reader])
    assert fetched.partitions[0].attempts == [(0, 0), (2, 0)]
    begin(second, 0)
    lose(room, second)
    assert attempts(room) == {0: 1, 2: 0}


def test_a_member_that_comes_back_with_its_claim_has_lost_nothing(room):
    first = member(room)
    begin(first, 0)
    first.peer.leave()
    room.wait(4)
    first.peer = room.peer()
    first.attend()
    room.wait(LOST)
    assert known(room) == {}
    first.peer.leave()
    room.wait(LOST)
    again = member(room, owned=list(first.owned.items()))
    assert again.owned == first.owned, "it shows the generation of its claim"
    assert known(room) == {}


def test_a_static_member_that_is_another_process_has_lost_its_former_one(room):
    first = member(room, name="w1")
    begin(first, 0)
    first.peer.leave()
    room.wait(1)
    second = member(room, name="w1")
    assert second.owned[1] > first.owned[1]
    assert attempts(room) == {0: 1}


def test_after_a_restart_of_the_broker_nothing_is_counted(room):
    first = member(room)
    begin(first, 0)
    room.restart()
    room.wait(LOST)
    member(room)
    assert known(room) == {}


def test_what_no_one_can_count_changes_nothing(room):
    """Of partitions that are not the member's, of an old claim, beyond the log."""
    first = member(room)
    begun = [
        BegunMessages(1, first.owned[1] - 1, [(0, 0)]),
        BegunMessages(99, first.owned[1], [(0, 0)]),
        BegunMessages(1, first.owned[1], [(10, 0), (1 << 50, 0), (3, 0)]),
        BegunMessages(2, first.owned[2], [(0, 0)]),
    ]
    answer = first.peer.ask(messages.BeginMessages, "g", first.number, first.secret, begun)
    assert isinstance(answer, messages.Done)
    lose(room, first)
    assert (attempts(room), known(room, 2)) == ({3: 1}, {})


def test_a_batch_takes_no_attempts_away(room):
    first = member(room)
    begin(first, 0)
    second = lose(room, first)
    begin(second, 0, 1, attempts=1, together=True)
    lose(room, second)
    assert attempts(room) == {0: 1, 1: 0}


def test_while_too_many_wait_the_claim_is_made_and_nothing_counted():
    room = filled(MembersRoom(max_parked=4))
    first = member(room)
    begin(first, *range(5))
    second = lose(room, first)
    assert second.owned
    assert known(room) == {}
    begin(second, *range(4))
    lose(room, second)
    assert attempts(room) == dict.fromkeys(range(4), 1)


def test_a_topic_or_a_group_that_is_deleted_takes_with_it_what_was_begun(room):
    first = member(room)
    begin(first, 0)
    first.peer.leave()
    room.wait(LOST)
    assert room.broker.coordinator.tables["g"].begun
    topic = room.peer().ask(messages.DescribeTopics, ["orders"]).topics[0]
    room.peer().ask(messages.DeleteTopic, "orders", topic.id)
    room.wait(1)
    assert room.broker.coordinator.tables == {}


@pytest.mark.parametrize("group", ["g", "h"])
def test_only_the_member_says_it_and_at_most_so_much(room, group):
    first = member(room)
    answer = begin(first, *range(MAX_BEGUN + 1))
    assert "1001 messages" in refused(answer, "LimitExceeded")
    assert isinstance(begin(first, *range(MAX_BEGUN)), messages.Done)
    secret = type(first.secret)(bytes(16))
    refused(first.peer.ask(messages.BeginMessages, group, first.number, secret, []), "UnknownMember")
    refused(
        first.peer.ask(messages.BeginMessages, group, first.number + 1, first.secret, []), "UnknownMember"
    )
