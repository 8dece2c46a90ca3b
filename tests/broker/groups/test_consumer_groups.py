import pytest
from crc32c import crc32c

from journal.constants import MAX_REQUEST_ENTRIES
from journal.records.group_entries import PartitionOffset
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.support.broker_room import Room, refused
from txbroker.broker.groups.consumer_groups import IN_A_STEP
from txbroker.wire import messages

XID = Xid(1, b"x", b"")


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    room.peer().send(partition, b"a", b"b", b"c")
    return partition


def commit(room, partition, offset, generation=0, group="g", metadata=""):
    return room.peer().ask(
        messages.CommitOffsets, group, [PartitionOffset(partition, offset, generation, metadata)]
    )


def positions(room, partitions=None, group="g"):
    return room.peer().ask(messages.FetchOffsets, group, partitions).offsets


def claim(room, *partitions, member="m", group="g"):
    return room.peer().ask(messages.ClaimPartitions, group, member, list(partitions))


def hold(room, partition, group="g"):
    """Prepare a transaction that moves the group."""
    peer = room.peer()
    peer.ask(messages.AddOffsets, 1, group, [PartitionOffset(partition, 1)])
    assert isinstance(peer.ask(messages.Prepare, 1, XID, Totals(0, 1, crc32c(b""))), messages.Done)


def test_positions_are_kept_with_their_metadata_over_a_restart(room, partition):
    assert positions(room) == []
    assert positions(room, [partition]) == [messages.GroupOffset(partition, None)]
    assert isinstance(commit(room, partition, 2, metadata="note"), messages.Done)
    room.restart()
    assert positions(room) == [messages.GroupOffset(partition, 2, 0, "note")]


def test_a_commit_is_answered_once_forced(room, partition):
    peer = room.peer()
    asked = peer.tell(messages.CommitOffsets, "g", [PartitionOffset(partition, 1)])
    assert peer.answer(asked) is None
    room.engine.sync()
    assert peer.answer(asked) == messages.Done(asked)


@pytest.mark.parametrize("offset", [-1, 4, 1 << 62])
def test_an_offset_outside_of_the_log_is_refused_with_its_bounds(room, partition, offset):
    answer = commit(room, partition, offset)
    refused(answer, "OffsetOutOfRange")
    assert answer.numbers == {"start": 0, "end": 3}


def test_the_end_and_the_start_are_positions(room, partition):
    for offset in (3, 0):
        assert isinstance(commit(room, partition, offset), messages.Done)
        assert positions(room)[0].offset == offset


def test_one_bad_offset_keeps_all_of_the_request_from_moving(room, partition):
    offsets = [PartitionOffset(partition, 1), PartitionOffset(99, 0)]
    refused(room.peer().ask(messages.CommitOffsets, "g", offsets), "UnknownPartition")
    assert positions(room) == []


@pytest.mark.parametrize("group", ["", "x" * 256, "a\nb"])
def test_a_group_name_is_short_and_printable(room, partition, group):
    refused(commit(room, partition, 1, group=group), "InvalidName")
    refused(claim(room, partition, group=group), "InvalidName")
    refused(room.peer().ask(messages.FetchOffsets, group), "InvalidName")


def test_metadata_is_bounded(room, partition):
    refused(commit(room, partition, 1, metadata="x" * 5000), "LimitExceeded")


def test_the_newest_claim_fences_the_ones_before_and_whoever_claimed_nothing(room, partition):
    [(_, old)] = claim(room, partition, member="old").claims
    assert isinstance(commit(room, partition, 1, old), messages.Done)
    [(_, new)] = claim(room, partition, partition, member="new").claims
    assert new > old
    for generation in (0, old):
        assert "'new'" in refused(commit(room, partition, 2, generation), "GenerationFenced")
    assert isinstance(commit(room, partition, 2, new), messages.Done)
    assert positions(room) == [messages.GroupOffset(partition, 2, new)]


def test_claims_survive_a_restart(room, partition):
    [(_, generation)] = claim(room, partition).claims
    room.restart()
    refused(commit(room, partition, 1), "GenerationFenced")
    assert isinstance(commit(room, partition, 1, generation), messages.Done)


def test_a_bad_claim_claims_nothing(room, partition):
    refused(claim(room, partition, 99), "UnknownPartition")
    refused(claim(room), "InvalidSetting")
    refused(claim(room, partition, member=""), "InvalidName")
    assert positions(room) == []


def test_groups_are_listed_with_their_lag(room, partition):
    commit(room, partition, 1, group="slow")
    commit(room, partition, 3, group="quick")
    groups = room.peer().ask(messages.ListGroups).groups
    assert [(g.name, g.positions) for g in groups] == [
        ("quick", [("orders", 0, 3, 0)]),
        ("slow", [("orders", 0, 1, 2)]),
    ]


def test_a_deleted_group_is_gone_and_its_consumers_are_fenced(room, partition):
    [(_, generation)] = claim(room, partition).claims
    commit(room, partition, 1, generation)
    first = room.group_id()
    assert isinstance(room.peer().ask(messages.DeleteGroup, "g", first), messages.Done)
    assert positions(room) == []
    refused(commit(room, partition, 2, generation), "GenerationFenced")
    refused(room.peer().ask(messages.DeleteGroup, "g", first), "UnknownGroup")


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["claim", "commit", "transaction"])
def test_a_group_made_anew_is_not_deleted_by_who_means_the_one_before(room, partition, how):
    def make():
        if how == "claim":
            claim(room, partition)
        elif how == "commit":
            commit(room, partition, 1)
        else:
            hold(room, partition)
            room.restart()
            room.engine.housekeeping.checkpoint_inline()
            room.restart()
            assert isinstance(room.peer().ask(messages.Commit, xid=XID), messages.Committed)
            [info] = room.peer().ask(messages.ListGroups).groups
            outcome = room.peer().ask(messages.AskOutcome, xid=XID)
            room.peer().ask(messages.Forget, outcome.session, outcome.serial, XID)
            return info.id
        return room.peer().ask(messages.FetchOffsets, "g", []).id

    first = make()
    assert len(first) == 16
    assert isinstance(room.peer().ask(messages.DeleteGroup, "g", first), messages.Done)
    second = make()
    assert second != first
    assert "was made since" in refused(room.peer().ask(messages.DeleteGroup, "g", first), "UnknownGroup")
    room.restart()
    room.engine.housekeeping.checkpoint_inline()
    room.restart()
    refused(room.peer().ask(messages.DeleteGroup, "g", first), "UnknownGroup")
    assert isinstance(room.peer().ask(messages.DeleteGroup, "g", second), messages.Done)


def test_a_group_keeps_the_id_that_it_was_made_with(room, partition):
    commit(room, partition, 1)
    made = room.group_id()
    commit(room, partition, 2)
    claim(room, partition)
    assert room.peer().ask(messages.FetchOffsets, "g", []).id == made
    assert room.peer().ask(messages.FetchOffsets, "nobody", []).id == b""


def test_a_new_group_needs_an_id_that_is_nobody_elses(room, partition):
    offsets = [PartitionOffset(partition, 1)]
    refused(room.peer().ask(messages.CommitOffsets, "g", offsets, b"short"), "InvalidName")
    refused(room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], b""), "InvalidName")
    refused(room.peer().ask(messages.AddOffsets, 1, "g", offsets, id=b""), "InvalidName")
    assert room.broker.groups.groups == {}


@pytest.mark.parametrize(
    ("before", "expected", "says"),
    [(None, 0, "no position"), (2, None, "offset 2"), (2, 1, "offset 2"), (2, 3, "offset 2")],
)
def test_a_group_that_does_not_stand_where_it_is_expected_is_not_moved(
    room, partition, before, expected, says
):
    if before is not None:
        commit(room, partition, before)
    offsets = [PartitionOffset(partition, 1)]
    assert says in refused(
        room.peer().ask(messages.CommitOffsets, "g", offsets, expected=[expected]), "PositionMoved"
    )
    assert [each.offset for each in positions(room)] == ([] if before is None else [before])
    move = room.peer().ask(messages.CommitOffsets, "g", offsets, expected=[before])
    assert isinstance(move, messages.Done)
    assert [each.offset for each in positions(room)] == [1]


def test_as_many_positions_are_expected_as_are_moved(room, partition):
    refused(
        room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 1)], expected=[]),
        "InvalidSetting",
    )


def test_a_held_group_is_not_deleted_and_says_who_holds_it(room, partition):
    commit(room, partition, 1)
    hold(room, partition)
    assert str(XID) in refused(room.peer().ask(messages.DeleteGroup, "g", room.group_id()), "OffsetPending")
    assert "-1 (xid" in positions(room)[0].pending_by
    room.peer().ask(messages.Rollback, xid=XID)
    assert isinstance(room.peer().ask(messages.DeleteGroup, "g", room.group_id()), messages.Done)


def test_a_hold_of_one_group_is_not_in_the_way_of_another(room, partition):
    hold(room, partition)
    refused(commit(room, partition, 2), "OffsetPending")
    assert isinstance(commit(room, partition, 2, group="other"), messages.Done)


def test_groups_and_their_positions_are_bounded_and_known_ones_go_on():
    room = Room(max_groups=1, max_group_positions=2)
    partitions = room.topic(partitions=3)
    for partition in partitions[:2]:
        assert isinstance(commit(room, partition, 0), messages.Done)
    assert "max_groups" in refused(commit(room, partitions[0], 0, group="h"), "LimitExceeded")
    assert "max_group_positions" in refused(commit(room, partitions[2], 0), "LimitExceeded")
    refused(claim(room, partitions[2]), "LimitExceeded")
    assert isinstance(claim(room, *partitions[:2]), messages.Claimed)


def test_on_a_full_disk_groups_go_on_and_none_begins(room, partition):
    commit(room, partition, 1)
    room.engine.full_at = -1
    assert isinstance(commit(room, partition, 2), messages.Done)
    refused(commit(room, partition, 2, group="new"), "DiskFull")


def test_a_request_lists_at_most_as_many_partitions_as_any(room, partition):
    many = [partition] * (MAX_REQUEST_ENTRIES + 1)
    offsets = [PartitionOffset(number, 1) for number in many]
    peer = room.peer()
    for refusal in (
        claim(room, *many),
        peer.ask(messages.CommitOffsets, "g", offsets),
        peer.ask(messages.FetchOffsets, "g", many),
        peer.ask(messages.AddOffsets, 1, "g", offsets),
    ):
        assert f"the limit is {MAX_REQUEST_ENTRIES}" in refused(refusal, "LimitExceeded")
    assert positions(room) == []
    assert isinstance(peer.ask(messages.CommitOffsets, "g", offsets[:-1]), messages.Done)


def test_all_positions_of_a_group_and_all_groups_are_told_of_in_steps(room):
    partitions = room.topic(partitions=3 * IN_A_STEP)
    offsets = [PartitionOffset(number, 0) for number in partitions]
    room.peer().ask(messages.CommitOffsets, "g", offsets)
    room.peer().ask(messages.CommitOffsets, "h", offsets[:1])
    peer, steps = room.peer(), []
    peer.session.wake = lambda: None
    room.broker.stepwise.goes_on = lambda: steps.append(None) or False
    for kind, fields, least in ((messages.FetchOffsets, ("g",), 3), (messages.ListGroups, (), 4)):
        steps.clear()
        asked = peer.tell(kind, *fields)
        while peer.session.due:
            peer.session.go_on()
        assert len(steps) >= least
        answer = peer.answer(asked)
        if kind is messages.FetchOffsets:
            assert answer.offsets == [messages.GroupOffset(number, 0) for number in partitions]
        else:
            [first, second] = answer.groups
            assert first.positions == [("orders", index, 0, 0) for index in range(len(partitions))]
            assert (second.name, second.positions) == ("h", [("orders", 0, 0, 0)])


def test_a_topic_that_is_deleted_amid_the_steps_is_left_out(room):
    partitions = room.topic(partitions=2 * IN_A_STEP)
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(number, 0) for number in partitions])
    peer = room.peer()
    peer.session.wake = lambda: None
    room.broker.stepwise.goes_on = lambda: False
    asked = [peer.tell(messages.FetchOffsets, "g"), peer.tell(messages.ListGroups)]
    room.peer().ask(messages.DeleteTopic, "orders", room.topic_id())
    while peer.session.due:
        peer.session.go_on()
    offsets, groups = map(peer.answer, asked)
    assert len(offsets.offsets) == IN_A_STEP
    assert len(groups.groups[0].positions) == IN_A_STEP
