"""Members over dead connections, full disks, faults of the broker, limits, and other things that go wrong."""

import pytest

from journal.records.group_entries import PartitionOffset
from journal.records.outcome_entry import OUTCOMES_TOPIC
from tests.members.members_room import MembersRoom, settle
from tests.support.broker_room import refused
from tests.support.builders import small_files
from txbroker.members.coordinator import MAX_LOST, Coordinator
from txbroker.members.group_table import MAX_LOOKED, GroupTable
from txbroker.wire import messages


@pytest.fixture
def room():
    made = MembersRoom()
    made.topic("orders", 4)
    return made


def owned(*clients):
    return [sorted(client.owned) for client in clients]


def park_behind(room, session, command):
    """Put a request of a session in line, as if memory had been short when it came."""
    room.broker.parked_requests.park(session, command, memoryview(b""))


def test_a_request_that_waited_when_its_session_ended_does_not_take_the_member_from_its_new_session(room):
    first = room.member()
    first.take()
    old = first.peer
    park_behind(room, old.session, messages.Attend(90, "g", first.number, first.secret))
    old.leave()
    first.peer = room.peer()
    first.attend()
    room.broker.parked_requests.move()
    room.engine.sync()
    assert first.peer.answer(first.asked) is None
    assert room.broker.coordinator.tables["g"].members[first.number].session is first.peer.session


def test_a_join_that_waited_when_its_session_ended_makes_no_member(room):
    peer = room.peer()
    park_behind(room, peer.session, messages.JoinGroup(90, "g", bytes(16), ["orders"]))
    peer.leave()
    room.broker.parked_requests.move()
    assert room.broker.coordinator.tables == {}


def test_a_member_that_comes_on_another_connection_is_answered_on_the_old_one(room):
    first = room.member()
    first.take()
    asked, old = first.asked, first.peer
    first.peer = room.peer()
    first.attend()
    assert old.answer(asked) == messages.Attended(asked)


def test_a_member_may_have_more_partitions_than_other_requests_may_name():
    room = MembersRoom(max_topic_partitions=5000)
    room.topic("orders", 5000)
    first = room.member()
    for _ in range(60):
        room.wait(0.1)
        first.take()
    assert len(first.owned) == 5000
    second = room.member()
    settle(room, first, second, seconds=4)
    assert (len(first.owned), len(second.owned)) == (2500, 2500)


def test_a_member_cannot_say_that_it_has_more_than_there_can_be(room):
    first = room.member()
    many = [(number, 1) for number in range(100_001)]
    refused(first.peer.ask(messages.Attend, "g", first.number, first.secret, many), "LimitExceeded")
    refused(room.member(owned=many).refused, "LimitExceeded")


def test_what_a_member_says_that_it_has_is_not_kept_when_it_was_answered(room):
    first = room.member()
    first.take()
    room.member()
    first.peer.ask(
        messages.Attend, "g", first.number, first.secret, [(number, 9) for number in range(1000)],
        list(range(1000, 2000)),
    )  # fmt: skip
    member = room.broker.coordinator.tables["g"].members[first.number]
    assert (member.shown, member.releasing) == ({}, frozenset())


def test_a_name_of_a_topic_that_cannot_be_is_refused(room):
    refused(room.member("x" * 256).refused, "InvalidName")


def test_a_member_that_is_refused_does_not_end_its_namesake():
    room = MembersRoom(max_group_positions=4)
    room.topic("orders", 4)
    room.topic("others", 4)
    first = room.member(name="worker")
    first.take()
    first.peer.leave()
    refused(room.member("orders", "others", name="worker").refused, "LimitExceeded")
    first.peer = room.peer()
    first.attend()
    assert first.take() is None
    assert owned(first) == [[1, 2, 3, 4]]


def test_room_is_looked_for_once_for_topics_that_several_members_read():
    room = MembersRoom()
    room.topic("orders", 4)
    room.topic("others", 3)
    tries = []
    consuming = room.broker.consuming
    check = consuming.check_room
    consuming.check_room = lambda *of: (tries.append(of), check(*of))
    for topics in (["orders"], ["orders"], ["orders", "others"], ["others"]):
        assert room.member(*topics).refused is None
    # The second time for the claims of the first one.
    assert [len(numbers) for _, _, numbers in tries] == [4, 4, 7]


def test_a_static_member_that_comes_back_needs_no_room_of_its_own():
    room = MembersRoom(max_members=1)
    room.topic("orders", 1)
    room.member(name="worker").peer.leave()
    assert room.member(name="worker").refused is None


def test_a_claim_that_is_over_a_limit_holds_up_no_other():
    room = MembersRoom(max_group_positions=4)
    room.topic("orders", 4)
    first, second = room.member(pattern="*"), room.member()
    settle(room, first, second)
    room.topic("others", 2)
    settle(room, first, second)
    second.peer.ask(messages.LeaveGroup, "g", second.number, second.secret)
    settle(room, first)
    assert owned(first) == [[1, 2, 3, 4]]


def test_claims_that_were_refused_are_tried_again_after_a_time_and_not_at_each_request():
    room = MembersRoom(max_group_positions=4)
    room.topic("orders", 4)
    first = room.member(pattern="*")
    first.take()
    room.topic("others", 2)
    room.wait(0.1)
    tries = []
    consuming = room.broker.consuming
    check = consuming.check_room
    consuming.check_room = lambda *of: (tries.append(of), check(*of))
    for _ in range(10):
        first.attend()
    room.wait(0.3)
    assert not tries
    room.wait(1)
    assert len(tries) == 1
    first.peer.ask(messages.DeleteTopic, "others", room.topic_id("others"))
    room.topic("more", 1)
    consuming.check_room = lambda *of: None  # there is room now
    settle(room, first, seconds=2)
    assert owned(first) == [[1, 2, 3, 4, 7]]


def test_a_topic_that_is_claimed_in_parts_begins_where_start_says_in_all_of_them(monkeypatch):
    monkeypatch.setattr("txbroker.members.coordinator.MAX_CLAIMED", 1)
    room = MembersRoom()
    room.topic("orders", 4)
    room.topic("others", 1)
    for number in (1, 2, 3, 4):
        room.peer().send(number, b"a")
    peer, later = room.peer(), room.peer()
    joined = peer.ask(messages.JoinGroup, "g", bytes(16), ["orders"], start="latest")
    assert room.generation(1)
    assert not room.generation(2)
    later.ask(messages.JoinGroup, "g", b"2" * 16, ["others"])
    room.broker.coordinator.tables["g"].assign_at = 0
    peer.ask(messages.Attend, "g", joined.member, joined.secret)
    room.wait(1)
    assert [room.broker.groups.find("g").position(number) for number in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_a_partition_is_not_released_by_a_request_that_its_answer_has_crossed(room):
    """The client sends a request while the answer that gives it a partition is on its way to it, and the broker asks
    for the partition back in between.
    """
    first = room.member()
    second = room.member()
    room.wait(0.6)
    first.take()
    first.release()  # second is told of its partitions; the answer is under way
    assert second.asked is not None
    third = room.member(name="c")
    fourth = room.member(name="d")
    room.wait(0.6)
    generations = {number: room.generation(number) for number in (3, 4)}
    second.attend()  # has not read that answer
    assert second.peer.answer(second.asked).revoked == []
    room.wait(1)
    assert {number: room.generation(number) for number in (3, 4)} == generations
    second.asked -= 1
    settle(room, first, second, third, fourth)
    assert [len(client.owned) for client in (first, second, third, fourth)] == [1, 1, 1, 1]
    assert second.lost == set()


def test_a_broker_that_was_late_hears_its_sockets_before_it_loses_members(room):
    """A request of another member comes first after a stall, before the timer that was due in it."""
    first, second = room.member(session_timeout=6_000_000), room.member(session_timeout=6_000_000)
    settle(room, first, second)
    room.clock.advance(30_000_000)
    room.member(name="third")
    first.attend()
    second.attend()
    assert room.broker.coordinator.count == 3


def test_many_members_are_lost_in_several_turns(room):
    peer = room.peer()
    for number in range(MAX_LOST + 5):
        peer.ask(messages.JoinGroup, "g", number.to_bytes(16), ["orders"])
    peer.leave()
    room.wait(4.9)
    room.clock.advance(200_000)
    room.broker.coordinator._look("g")
    assert room.broker.coordinator.count == 5
    room.timers.advance(0)
    assert room.broker.coordinator.count == 0


def test_a_member_whose_requests_wait_is_not_silent(room):
    first = room.member(session_timeout=6_000_000)
    first.take()
    park_behind(room, first.peer.session, messages.Attend(90, "g", first.number, first.secret))
    room.wait(20)
    assert room.broker.coordinator.count == 1
    room.broker.parked_requests.move()
    room.wait(7)
    assert room.broker.coordinator.count == 0


def test_a_member_goes_on_over_the_connection_that_supersedes_its_own(room):
    first, second = room.member(), room.member()
    settle(room, first, second)
    before = dict(first.owned)
    first.peer = first.peer.again()
    settle(room, second, seconds=2)
    first.attend()
    settle(room, first, second, seconds=10)
    assert (first.owned, first.lost, owned(second)) == (before, set(), [[3, 4]])


def test_a_member_says_nothing_of_its_secrets(room):
    first = room.member()
    member = room.broker.coordinator.tables["g"].members[first.number]
    assert repr(member.nonce) not in repr(member)
    assert repr(member.nonce)[2:-1] not in repr(member)


def test_a_broker_that_was_late_when_a_member_was_due_hears_its_socket_first(room):
    first = room.member(session_timeout=6_000_000)
    first.take()
    room.wait(2.5)  # it was answered; its next request is under way
    room.clock.advance(30_000_000)
    room.timers.advance(30)
    first.attend()
    assert room.broker.coordinator.count == 1


def test_a_fold_that_disagrees_with_a_claim_ends_the_process(room, monkeypatch):
    ended = []
    room.broker.on_failure = lambda *of: ended.append(of)
    first = room.member(pattern="*")
    first.take()

    def fail(*_):
        raise AssertionError("it does not fit")

    monkeypatch.setattr(room.broker.groups, "_group", fail)
    room.topic("others", 1)
    room.timers.advance(1)
    [(doing, error)] = ended
    assert "'g'" in doing
    assert "it does not fit" in str(error)


def test_a_fault_while_a_group_is_looked_after_does_not_end_the_looks(room, monkeypatch):
    first, second = room.member(), room.member()
    settle(room, first, second)
    first.peer.leave()
    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "_place", lambda *_: 1 // 0)
        room.wait(6)
    settle(room, second, seconds=3)
    assert owned(second) == [[1, 2, 3, 4]]


def test_joins_that_go_on_do_not_put_off_an_assignment(room):
    work = []
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    first = room.member()
    for _ in range(5):
        room.member()
        do, done, _ = work.pop(0)
        done(do())
        room.wait(1)
    first.take()
    assert first.owned


def test_groups_without_members_leave_nothing(room):
    coordinator = room.broker.coordinator
    for number in range(20):
        member = room.member(group=f"g{number}", session_timeout=3_600_000_000)
        member.peer.ask(messages.LeaveGroup, member.group, member.number, member.secret)
    static = room.member(group="static", name="worker")
    static.peer.ask(messages.LeaveGroup, "static", static.number, static.secret, False)
    assert list(coordinator.tables) == ["static"]
    assert list(coordinator._timers) == ["static"]
    room.wait(61)
    assert (coordinator.tables, coordinator._timers) == ({}, {})
    assert not room.timers.getDelayedCalls()


def test_a_group_that_was_deleted_keeps_nothing_for_anybody(room):
    static = room.member(name="worker")
    static.peer.ask(messages.LeaveGroup, "g", static.number, static.secret, False)
    assert isinstance(static.peer.ask(messages.DeleteGroup, "g", room.group_id()), messages.Done)
    other = room.member()
    other.take()
    assert owned(other) == [[1, 2, 3, 4]]


def test_a_topic_that_is_made_again_is_assigned_and_claimed_anew(room):
    first, second = room.member(), room.member()
    settle(room, first, second)
    held = dict(first.owned)
    first.peer.ask(messages.DeleteTopic, "orders", room.topic_id())
    room.topic("orders", 4)
    settle(room, first, second)
    assert owned(first, second) == [[5, 6], [7, 8]]
    assert first.lost == set(held)


def test_what_a_member_shows_while_an_assignment_is_computed_stays_its_own(room):
    """It came back after a start, a moment after another: that one had the whole group, and got it."""
    first, second = room.member(), room.member()
    settle(room, first, second)
    shown = [list(first.owned.items()), list(second.owned.items())]
    room.restart()
    work, run = [], room.broker.coordinator._run_blocking
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    second = room.member(owned=shown[1])
    do, done, _ = work.pop()
    target = do()
    assert set(target.values()) == {second.number}
    first = room.member(owned=shown[0])
    room.broker.coordinator._run_blocking = run
    done(target)
    for client, has in zip((first, second), shown, strict=True):
        client.owned = dict(has)
        client.attend()
    settle(room, first, second)
    assert (first.lost, first.revoked) == (set(), set())
    assert [list(each.owned.items()) for each in (first, second)] == shown


def test_a_topic_that_goes_while_it_is_assigned_is_not_claimed(room):
    work = []
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    room.broker.coordinator._guarded = lambda group, do: do()
    first = room.member()
    do, done, _ = work.pop(0)
    target = do()
    first.peer.ask(messages.DeleteTopic, "orders", room.topic_id())
    room.topic("orders", 2)
    done(target)
    for _ in range(5):
        room.wait(0.2)
        for do, done, _ in work:
            done(do())
        work.clear()
    first.take()
    assert owned(first) == [[5, 6]]


def test_a_topic_that_a_group_does_not_read_makes_no_assignment(room):
    first = room.member()
    first.take()
    work = []
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    room.topic("others", 1)
    room.wait(0.2)
    assert not work


@pytest.mark.parametrize("busy", [True, False])
def test_nobody_is_lost_and_nothing_claimed_while_a_large_commit_is_applied(room, monkeypatch, busy):
    first, second = room.member(), room.member()
    settle(room, first, second)
    first.peer.leave()
    monkeypatch.setattr(type(room.engine), "busy", property(lambda _: busy))
    for _ in range(60):
        room.clock.advance(100_000)
        room.timers.advance(0.1)
    monkeypatch.undo()
    assert room.broker.coordinator.count == (2 if busy else 1)
    settle(room, second, seconds=6)
    assert owned(second) == [[1, 2, 3, 4]]


def test_many_partitions_are_looked_at_in_several_turns():
    table = GroupTable(b"")
    table.aim(dict.fromkeys(range(5000), 1), {1})
    assert list(table.placed(0)) == []
    assert len(table.to_place) == 5000 - MAX_LOOKED


def test_what_a_member_has_that_nobody_was_ever_to_have_is_asked_back(room):
    """It has shown its claim after a start, and reads the topic no more when the first assignment is made."""
    table, number = GroupTable(b""), room.member().number
    member = room.broker.coordinator.tables["g"].members[number]
    table.members[member.number] = member
    table.own(member, 7, 1)
    table.aim({8: member.number}, {member.number})
    assert list(table.placed(5)) == [(member, 8)]
    assert member.asked == {7: 5 + member.max_handover}


def test_a_commit_of_a_released_partition_is_refused_once_it_is_another_s(room):
    first, second = room.member(), room.member()
    room.wait(0.6)
    first.take()
    held = dict(first.owned)
    first.release()
    second.take()
    for number in second.owned:
        offsets = [PartitionOffset(number, 0, held[number])]
        refused(first.peer.ask(messages.CommitOffsets, "g", offsets), "GenerationFenced")


def test_what_is_to_stay_after_all_is_not_asked_for_any_more(room):
    first, second = room.member(max_handover=3_000_000), room.member()
    room.wait(0.6)
    first.take()
    before = dict(first.owned)
    assert first.revoked == {3, 4}
    second.peer.ask(messages.LeaveGroup, "g", second.number, second.secret)
    for _ in range(50):
        room.wait(0.1)
        first.take()
    assert (first.owned, first.lost) == (before, set())
    assert {number: room.generation(number) for number in before} == before


def test_an_assignment_for_a_group_that_nobody_is_in_any_more_is_dropped(room):
    work = []
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    first = room.member()
    first.peer.ask(messages.LeaveGroup, "g", first.number, first.secret)
    [(do, done, failed)] = work
    done(do())
    failed(OSError("no thread"))
    room.wait(3)
    assert room.broker.coordinator.tables == {}
    assert not room.timers.getDelayedCalls()


def test_an_assignment_that_failed_is_computed_again(room):
    work = []
    room.broker.coordinator._run_blocking = lambda *of: work.append(of)
    first = room.member()
    work.pop()[2](OSError("no thread"))
    room.wait(1.1)
    do, done, _ = work.pop()
    done(do())
    room.wait(0.1)
    first.take()
    assert owned(first) == [[1, 2, 3, 4]]


def test_what_a_static_member_leaves_for_good_is_not_kept(room):
    first, second = room.member(name="worker-1"), room.member(name="worker-2")
    settle(room, first, second)
    first.peer.ask(messages.LeaveGroup, "g", first.number, first.secret)
    settle(room, second, seconds=1)
    assert owned(second) == [[1, 2, 3, 4]]


def test_static_members_that_come_back_in_another_order_get_what_is_kept_for_them():
    room = MembersRoom()
    room.topic("orders", 6)
    names = ("worker-1", "worker-2", "worker-3")
    members = [room.member(name=name) for name in names]
    settle(room, *members)
    before = dict(zip(names, owned(*members), strict=True))
    for member in members:
        member.peer.leave()
    room.wait(6)
    back = {name: room.member(name=name) for name in ("worker-1", "worker-3", "worker-2")}
    settle(room, *back.values())
    assert {name: sorted(member.owned) for name, member in back.items()} == before


def test_a_pattern_takes_no_topic_of_the_broker_s_own():
    room = MembersRoom(small_files(outcome_archive=True))
    [number] = room.topic("orders", 1)
    assert OUTCOMES_TOPIC in room.engine.catalog.topics
    first = room.member(pattern="*")
    first.take()
    assert owned(first) == [[number]]


def test_what_a_member_has_from_before_and_does_not_read_any_more_is_asked_back(room):
    room.topic("others", 1)
    first = room.member()
    first.take()
    had = dict(first.owned)
    room.restart()
    again = room.member("others", owned=list(had.items()))
    again.owned = dict(had)
    again.attend()
    settle(room, again)
    assert owned(again) == [[5]]


def test_a_member_that_shows_an_old_generation_is_told_that_it_has_lost_it_and_got_it_again(room):
    first = room.member()
    first.take()
    shown = [(number, generation - (number == 2)) for number, generation in first.owned.items()]
    told = first.peer.ask(messages.Attend, "g", first.number, first.secret, shown)
    assert told.lost == [2]
    assert [(each.partition, each.generation) for each in told.assigned] == [(2, first.owned[2])]


def test_of_two_that_show_the_same_the_first_has_it(room):
    first = room.member()
    first.take()
    had = dict(first.owned)
    room.restart()
    first, second = (room.member(owned=list(had.items())) for _ in range(2))
    for client in (first, second):
        client.owned = dict(had)
        client.attend()
    second.take()
    assert (owned(second), second.lost) == ([[]], {1, 2, 3, 4})
    settle(room, first, second)
    assert owned(first, second) == [[1, 2], [3, 4]]


def test_the_waiting_request_of_a_member_that_leaves_is_answered(room):
    first = room.member()
    first.take()
    first.peer.ask(messages.LeaveGroup, "g", first.number, first.secret)
    assert first.peer.answer(first.asked) == messages.Attended(first.asked, lost=[1, 2, 3, 4])


def test_a_partition_that_is_claimed_after_others_of_its_topic_begins_at_its_start(monkeypatch):
    monkeypatch.setattr("txbroker.members.coordinator.MAX_CLAIMED", 1)
    room = MembersRoom()
    for number in room.topic("orders", 3):
        room.peer().send(number, b"a")
    first = room.peer()
    first.ask(messages.JoinGroup, "g", bytes(16), ["orders"], start="latest")
    room.restart()
    room.member(start="latest")
    room.wait(6)
    assert [room.broker.groups.find("g").position(number) for number in (1, 2, 3)] == [1, 0, 0]
