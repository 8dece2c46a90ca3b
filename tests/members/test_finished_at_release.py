"""What a member has finished in a partition that it gives back is in the record that claims it for another.

Seen to fail: with the finished offsets settled by a record of their own, with those of partitions that are still the
member's or of another generation taken, with what nobody gets forgotten, and with the first position of a new reader
put before them.
"""

import pytest

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled
from journal.records.record import OffsetsCommitted, PartitionsClaimed
from journal.xid import Xid
from tests.members.members_room import MembersRoom, settle
from tests.support.broker_room import recorded, refused
from txbroker.wire import messages

MESSAGES = 10


@pytest.fixture
def room():
    room = MembersRoom()
    room.topic("orders", 2)
    for number in (1, 2):
        room.peer().send(number, *[b"%d" % each for each in range(MESSAGES)])
    return room


def offsets(*some):
    found = OffsetSet()
    for each in some:
        found.add(each)
    return found


def finished(member, number, *some, base=0, generation=None):
    known = member.owned[number] if generation is None else generation
    return Settled(number, known, base, encode_offsets(offsets(*some), base))


def attend(member, owned, settled, releasing=()):
    """Attend with what is said here; return the answer, if there is one at once."""
    member.asked = member.peer.tell(
        messages.Attend,
        member.group,
        member.number,
        member.secret,
        list(owned.items()),
        list(releasing),
        settled,
    )
    member.room.engine.sync()
    return member.peer.answer(member.asked)


def asked_back(room):
    """A member with two partitions, of which one is asked back for a second member; and the number of that one."""
    first = room.member()
    first.take()
    second = room.member()
    for _ in range(20):
        room.wait(0.1)
        first.take()
        second.take()
        if first.revoked:
            break
    [number] = first.revoked
    return first, second, number


def without(owned, number):
    return {each: generation for each, generation in owned.items() if each != number}


def has_finished(room, number):
    group = room.broker.groups.find("g")
    kept = group.settlements.get(number)
    above = [] if kept is None else [each for run in kept.finished.runs() for each in range(*run)]
    return [*range(group.position(number) or 0), *above]


def test_claim_and_finished_offsets_are_one_record(room):
    first, second, number = asked_back(room)
    records = recorded(room)
    attend(first, without(first.owned, number), [finished(first, number, 0, 1, 3)])
    [claim] = records
    assert isinstance(claim, PartitionsClaimed)
    [(claimed, generation)] = claim.claims
    [settled] = claim.settled
    assert (claimed, settled.partition, settled.generation) == (number, number, generation)
    assert has_finished(room, number) == [0, 1, 3]
    second.take()
    assert second.owned == {number: generation}
    room.restart()
    assert has_finished(room, number) == [0, 1, 3]


@pytest.mark.parametrize("start", ["latest", "earliest", 7])
def test_they_say_where_the_group_has_begun_if_nothing_else_does(room, start):
    first = room.member(start=None)  # as of a time, which its client looks up
    first.take()
    second = room.member(start=start)
    while not first.revoked:
        room.wait(0.1)
        first.take()
        second.take()
    [number] = first.revoked
    attend(first, without(first.owned, number), [finished(first, number, 2, 4, base=2)])
    assert has_finished(room, number) == [0, 1, 2, 4]


def test_what_is_said_again_after_a_lost_answer_changes_nothing(room):
    first, second, number = asked_back(room)
    said = finished(first, number, 0, 1)
    attend(first, without(first.owned, number), [said])
    second.take()
    second.commit(number, 5)
    records = recorded(room)
    attend(first, without(first.owned, number), [said])
    assert records == []
    assert has_finished(room, number) == [0, 1, 2, 3, 4]


def test_what_is_said_of_a_partition_that_stays_is_finished_at_once(room):
    first, _, number = asked_back(room)
    [kept] = set(first.owned) - {number}
    records = recorded(room)
    attend(first, first.owned, [finished(first, number, 0), finished(first, kept, 1)], [number])
    [record] = records
    assert isinstance(record, OffsetsCommitted)
    assert (has_finished(room, number), has_finished(room, kept)) == ([0], [1])


def test_what_is_said_with_another_generation_or_of_a_partition_of_others_is_passed_over(room):
    first, second, number = asked_back(room)
    [kept] = set(first.owned) - {number}
    attend(first, without(first.owned, number), [finished(first, number, 0, generation=99)])
    second.take()
    records = recorded(room)
    attend(first, without(first.owned, number), [finished(second, number, 0)])
    attend(second, second.owned, [finished(first, kept, 0)])
    assert records == []
    assert (has_finished(room, number), has_finished(room, kept)) == ([], [])


def test_what_nobody_gets_is_finished_all_the_same(room):
    first, second, number = asked_back(room)
    second.peer.ask(messages.LeaveGroup, "g", second.number, second.secret)
    records = recorded(room)
    attend(first, without(first.owned, number), [finished(first, number, 0, 1)])
    assert has_finished(room, number) == [0, 1]
    assert any(isinstance(each, OffsetsCommitted) for each in records)
    room.restart()
    assert has_finished(room, number) == [0, 1]


def test_of_a_partition_that_a_static_member_is_to_get_later_too(room):
    first, second, number = asked_back(room)
    second.peer.leave()
    records = recorded(room)
    attend(first, without(first.owned, number), [finished(first, number, 4)])
    assert has_finished(room, number) == [4]
    assert len(records) == 1


def test_what_a_prepared_transaction_holds_is_left_and_the_claim_is_made(room):
    first, second, number = asked_back(room)
    held = GroupPositions("g", b"", [], [finished(first, number, 1)])
    peer = room.peer()
    assert isinstance(peer.ask(messages.Prepare, 1, Xid(1, b"x", b""), positions=[held]), messages.Done)
    attend(first, without(first.owned, number), [finished(first, number, 0, 1)])
    second.take()
    assert number in second.owned
    assert has_finished(room, number) == []
    peer.ask(messages.Commit, 0, 1)
    assert has_finished(room, number) == [1]


def test_what_is_held_in_a_partition_that_stays_is_left_too(room):
    first, _, number = asked_back(room)
    held = GroupPositions("g", b"", [], [finished(first, number, 1)])
    room.peer().ask(messages.Prepare, 1, Xid(1, b"x", b""), positions=[held])
    answer = attend(first, first.owned, [finished(first, number, 0, 1)], [number])
    assert (answer.assigned, answer.revoked, answer.lost) == ([], [], [])
    assert has_finished(room, number) == []


def test_offsets_beyond_the_end_are_left_and_the_claim_is_made(room):
    first, second, number = asked_back(room)
    attend(first, without(first.owned, number), [finished(first, number, MESSAGES)])
    second.take()
    assert number in second.owned
    assert has_finished(room, number) == []


@pytest.mark.parametrize(
    ("settled", "error", "text"),
    [
        ([Settled(1, 1, 0, retried=[Retried(1)])], "InvalidSetting", "only a commit says"),
        ([Settled(1, 1, 0), Settled(1, 1, 0)], "InvalidSetting", "says twice"),
        ([Settled(number, 1, 0, bytes(60)) for number in range(1, 1100)], "LimitExceeded", "partitions"),
        (
            [Settled(number, 1, 0) for number in range(1, 102)],
            "LimitExceeded",
            "101 partitions, 100 are allowed",
        ),
        ([Settled(1, 1, 0, b"\x02" + b"\xaa" * 280_000)], "LimitExceeded", "bytes"),
    ],
)
def test_anything_else_and_too_much_is_refused(room, settled, error, text):
    first, _, number = asked_back(room)
    answer = attend(first, without(first.owned, number), settled)
    assert text in refused(answer, error)
    assert has_finished(room, number) == []
    assert number in room.broker.coordinator.tables["g"].owners


def test_bytes_that_are_no_set_are_refused_before_anything_has_changed(room):
    first, second, number = asked_back(room)
    [kept] = set(first.owned) - {number}
    said = [finished(first, kept, 0), Settled(number, first.owned[number], 0, b"\x09")]
    answer = attend(first, without(first.owned, number), said)
    text = refused(answer, "InvalidFrame")
    assert f"in partition {number}: the 1 bytes" in text
    assert "of kind 9; nothing has changed" in text
    assert has_finished(room, kept) == has_finished(room, number) == []
    assert room.broker.coordinator.tables["g"].owners[number].number == first.number
    for _ in range(12):  # first is silent, and lost in time
        room.wait(5)
        second.take()
    assert {number, kept} <= second.owned.keys()


def test_with_a_power_cut_both_are_there_or_neither(room):
    first, _, number = asked_back(room)
    owned = dict(first.owned)
    first.peer.tell(
        messages.Attend, "g", first.number, first.secret, list(without(owned, number).items()), [],
        [finished(first, number, 0, 1)],
    )  # fmt: skip
    room.filesystem = room.filesystem.crash_clone(0, 0.0)
    room.start()
    assert has_finished(room, number) == []
    assert room.generation(number) == owned[number]
    # The member that was not answered says it again by a commit: its claim holds.
    answer = room.peer().ask(messages.CommitOffsets, "g", [], b"", settled=[finished(first, number, 0, 1)])
    assert isinstance(answer, messages.Done)
    assert has_finished(room, number) == [0, 1]


def test_each_who_gives_back_says_what_it_has_finished_and_none_of_it_comes_again():
    room, numbers = MembersRoom(), range(1, 9)
    room.topic("orders", len(numbers))
    for number in numbers:
        room.peer().send(number, *[b"v"] * 30)
    members, done = [room.member()], dict.fromkeys(numbers, 0)
    for turn in range(16):
        if turn % 4 < 2:
            members.append(room.member())
        else:
            gone = members.pop(0)
            gone.peer.ask(messages.LeaveGroup, "g", gone.number, gone.secret)
        for _ in range(10):
            room.wait(0.1)
            for member in members:
                member.take()
                for number in sorted(member.revoked):
                    assert (room.broker.groups.find("g").position(number) or 0) == done[number]
                    member.revoked.discard(number)
                    said = [finished(member, number, done[number])]
                    done[number] += 1
                    member.owned.pop(number)
                    attend(member, member.owned, said)
    settle(room, *members)
    assert sum(done.values()) > 10
    assert {number: room.broker.groups.find("g").position(number) or 0 for number in done} == done


def test_what_is_too_far_ahead_is_finished_as_far_as_it_may_be():
    room = MembersRoom(max_ahead=5)
    room.topic("orders", 2)
    for number in (1, 2):
        room.peer().send(number, *[b"v"] * 40)
    first, _, number = asked_back(room)
    [kept] = set(first.owned) - {number}
    some = finished(first, number, *range(1, 4), 30)
    attend(first, without(first.owned, number), [some, finished(first, kept, *range(30))])
    assert has_finished(room, number) == [1, 2, 3]
    assert has_finished(room, kept) == list(range(30))


def test_nobody_is_told_before_what_was_finished_is_forced(room):
    first = room.member()
    first.take()
    number = min(first.owned)
    rest = without(first.owned, number)
    said = [finished(first, number, 0)]  # nobody has asked for it, so the member is told that it still has it
    asked = first.peer.tell(messages.Attend, "g", first.number, first.secret, list(rest.items()), [], said)
    assert first.peer.answer(asked) is None
    room.engine.sync()
    assert number in [each.partition for each in first.peer.answer(asked).assigned]
    assert has_finished(room, number) == [0]


def test_what_stays_is_one_record_for_all_partitions():
    room = MembersRoom()
    room.topic("orders", 90)
    for number in range(1, 91):
        room.peer().send(number, b"v")
    first = room.member()
    first.take()
    records = recorded(room)
    attend(first, first.owned, [finished(first, number, 0) for number in first.owned])
    assert len(records) == 1
    assert all(has_finished(room, number) == [0] for number in first.owned)
