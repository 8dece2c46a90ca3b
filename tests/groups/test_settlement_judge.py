"""What groups may settle offset by offset, as the broker judges it: plain, in one phase, and prepared."""

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from journal.constants import MAX_REQUEST_ENTRIES
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import (
    MAX_FINISHED_BYTES,
    MAX_SETTLED,
    GroupPositions,
    PartitionOffset,
    Retried,
    Settled,
    Unfinished,
)
from journal.records.record import LogStartMoved
from journal.transaction_states import Totals, TransactionNumber
from journal.transactions.unsent import Unsent
from journal.xid import Xid
from tests.support.broker_room import Room, refused
from txbroker.errors import (
    GenerationFenced,
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    OffsetOutOfRange,
    OffsetPending,
    UnknownPartition,
)
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
AHEAD, PARKED = 12, 3


@pytest.fixture
def room():
    return Room(max_ahead=AHEAD, max_parked=PARKED, max_offset_metadata=9)


@pytest.fixture
def partition(room):
    """Forty messages."""
    [partition] = room.topic()
    room.peer().send(partition, *[b"%d" % number for number in range(40)])
    return partition


def settled(partition, *offsets, base=0, unfinished=(), generation=0):
    finished = OffsetSet()
    for offset in offsets:
        finished.add(offset)
    said = [each if isinstance(each, Unfinished) else Unfinished(*each) for each in unfinished]
    return Settled(partition, generation, base, encode_offsets(finished, base), said)


def retried(partition, *what, base=0):
    return Settled(partition, 0, base, retried=[Retried(*each) for each in what])


def settle(room, *what, offsets=()):
    room.broker.consuming.settle("g", ID, list(offsets), list(what))
    room.engine.sync()


def state(room, partition):
    """The position, what is finished above it, and attempts by offset."""
    group = room.broker.groups.find("g")
    kept = group.settlements.get(partition)
    if kept is None:
        return group.position(partition), "", {}
    return (
        group.position(partition),
        str(kept.finished),
        {o: each.attempts for o, each in kept.unfinished.items()},
    )


def refuses(room, partition, error, text, *what, offsets=()):
    """It is refused so, and changes nothing, not even the journal."""
    before, lsn = state(room, partition), room.engine.last_lsn
    with pytest.raises(error, match=text) as found:
        settle(room, *what, offsets=offsets)
    assert "nothing has changed" in str(found.value).lower() or "no offset has moved" in str(found.value)
    assert (state(room, partition), room.engine.last_lsn) == (before, lsn)


def prepare(room, *what, xid=XID, peer=None, serial=1):
    return (peer or room.peer()).ask(
        messages.Prepare, serial, xid, None, positions=[GroupPositions("g", ID, [], list(what))]
    )


def prepare_directly(room, *what):
    """Prepare what no request can say: details that the broker makes."""
    positions = room.broker.consuming.recorded([GroupPositions("g", ID, [], list(what))])
    room.broker.consuming.check_settled(positions)
    number = TransactionNumber(room.peer().session.number, 1)
    room.engine.transactions.prepare(number, XID, None, 0, room.peer().session.owner, Unsent([], positions))
    room.engine.sync()


def end(room, kind, xid=XID):
    return room.peer().ask(kind, 0, 0, xid)


def test_what_is_settled_is_kept_over_a_restart_and_again_changes_nothing(room, partition):
    settle(room, settled(partition, 0, 1, 4, unfinished=[(2, 1, 0, "why")]))
    assert state(room, partition) == (2, "4", {2: 1})
    room.restart()
    assert state(room, partition) == (2, "4", {2: 1})
    settle(room, settled(partition, 0, 1, 4))
    assert state(room, partition) == (2, "4", {2: 1})
    settle(room, settled(partition, 2, 3))
    assert state(room, partition) == (5, "", {})


def test_a_group_without_a_position_begins_where_its_reader_says(room, partition):
    settle(room, settled(partition, 8, base=7))
    assert state(room, partition) == (7, "8", {})
    settle(room, settled(partition, 9, base=9))
    assert state(room, partition) == (7, "8-9", {})


def test_a_dead_letter_becomes_unfinished_again_for_this_group(room, partition):
    settle(room, settled(partition, *range(10)))
    settle(room, settled(partition, base=10, unfinished=[(3,)]))
    assert state(room, partition) == (3, "4-9", {})
    settle(room, settled(partition, 3))
    assert state(room, partition) == (10, "", {})


def test_offsets_beyond_the_end_or_before_the_start_of_the_log_are_refused(room, partition):
    settle(room, settled(partition, 38, base=38))
    text = "offset 40, the end of what can be read"
    for what, says in (
        (settled(partition, 40, base=38), f"offset 40 of orders-0, .* is not below {text}"),
        (settled(partition, unfinished=[(40, 1)]), f"offset 40 of orders-0, .* is not below {text}"),
        (settled(partition, base=41), f"base 41 of orders-0, .* is above {text}"),
    ):
        refuses(room, partition, OffsetOutOfRange, says, what)
    room.engine.accept(LogStartMoved(partition, 5, room.engine.now()))
    refuses(
        room,
        partition,
        OffsetOutOfRange,
        "offset 4 .* is gone: the log starts at 5",
        settled(partition, unfinished=[(4, 1)]),
    )


def test_retention_moves_the_position_of_a_group_that_goes_on_and_settling_what_is_gone_is_nothing(
    room, partition
):
    settle(room, settled(partition, 0, 2, unfinished=[(4, 1)]))
    room.engine.accept(LogStartMoved(partition, 5, room.engine.now()))
    settle(room, settled(partition, 3, 6, base=1))
    assert state(room, partition) == (5, "6", {})


def test_the_position_does_not_move_to_the_start_of_the_log_over_a_held_offset(room, partition):
    settle(room, settled(partition, 0))
    assert isinstance(prepare(room, settled(partition, 3)), messages.Done)
    room.engine.accept(LogStartMoved(partition, 5, room.engine.now()))
    settle(room, settled(partition, 6))
    assert state(room, partition) == (1, "6", {})
    end(room, messages.Rollback)
    settle(room, settled(partition, 7))
    assert state(room, partition) == (5, "6-7", {})


def test_an_offset_too_far_above_the_lowest_unfinished_one_is_refused(room, partition):
    settle(room, settled(partition, AHEAD))
    text = rf"offset {AHEAD + 1} of orders-0 is {AHEAD + 1} above offset 0, .*limit is {AHEAD} \(max_ahead\)"
    refuses(room, partition, LimitExceeded, text, settled(partition, AHEAD + 1))
    refuses(room, partition, LimitExceeded, text, settled(partition, unfinished=[(AHEAD + 1, 1)]))
    settle(room, settled(partition, 0))
    settle(room, settled(partition, AHEAD + 1))


def test_a_dead_letter_too_far_below_what_is_finished_is_refused(room, partition):
    settle(room, offsets=[PartitionOffset(partition, 20)])
    refuses(room, partition, LimitExceeded, "max_ahead", settled(partition, unfinished=[(19 - AHEAD - 1,)]))
    settle(room, settled(partition, unfinished=[(19 - AHEAD,)]))
    assert state(room, partition)[0] == 19 - AHEAD


def test_a_dead_letter_too_far_below_an_offset_with_details_is_refused(room, partition):
    settle(room, offsets=[PartitionOffset(partition, 10)])
    settle(room, settled(partition, unfinished=[(10 + AHEAD, 1)]))
    refuses(room, partition, LimitExceeded, "max_ahead", settled(partition, unfinished=[(9,)]))


def test_what_may_become_unfinished_when_a_prepared_transaction_ends_counts_as_lowest(room, partition):
    settle(room, settled(partition, *range(10)))
    prepare_directly(room, settled(partition, unfinished=[(2, 0, 1)]))
    settle(room, settled(partition, 2 + AHEAD))
    text = "above offset 2, the lowest"
    refuses(room, partition, LimitExceeded, text, settled(partition, 3 + AHEAD))
    assert isinstance(end(room, messages.Commit), messages.Committed)
    assert state(room, partition) == (2, f"3-9, {2 + AHEAD}", {2: 0})


def test_only_so_many_offsets_have_details(room, partition):
    settle(room, settled(partition, unfinished=[(1, 1), (2, 1)]))
    assert isinstance(prepare(room, retried(partition, (3,))), messages.Done)
    text = rf"4 offsets of orders-0 would have attempts.*limit is {PARKED} \(max_parked\)"
    refuses(room, partition, LimitExceeded, text, settled(partition, unfinished=[(4, 1)]))
    settle(room, settled(partition, unfinished=[(1, 2), (5,)]))
    settle(room, settled(partition, 2))
    settle(room, settled(partition, unfinished=[(4, 1)]))
    assert state(room, partition)[2] == {1: 2, 4: 1}


def test_prepared_retries_and_what_loses_its_details_take_no_room_of_others(room, partition):
    settle(room, settled(partition, unfinished=[(1, 1), (2, 1)]))
    what = settled(partition, unfinished=[(1, 2), (2, 2), (7,), (8,)])
    prepare_directly(room, what)
    settle(room, settled(partition, unfinished=[(3, 1)]))
    text = "4 offsets of orders-0 would have"
    refuses(room, partition, LimitExceeded, text, settled(partition, unfinished=[(4, 1)]))
    end(room, messages.Commit)
    assert state(room, partition)[2] == {1: 2, 2: 2, 3: 1}


def test_what_cannot_be_meant_is_refused(room, partition):
    for error, text, what in (
        (InvalidSetting, "offset 2 is finished and unfinished", settled(partition, 2, unfinished=[(2, 1)])),
        (InvalidSetting, "an offset comes twice", settled(partition, unfinished=[(2, 1), (2, 3)])),
        (LimitExceeded, "reason of 10 characters", settled(partition, unfinished=[(2, 1, 0, "x" * 10)])),
        (InvalidFrame, "orders-0: the 1 bytes of a set", Settled(partition, 0, 0, b"\x09")),
        (UnknownPartition, "99", settled(99, 1)),
        (GenerationFenced, "no generation has claimed it", settled(partition, 1, generation=3)),
    ):
        refuses(room, partition, error, text, what)
    position = [PartitionOffset(partition, 1)]
    refuses(room, partition, InvalidSetting, "Do one of the two", settled(partition, 2), offsets=position)
    refuses(room, partition, InvalidSetting, "no offsets for group")


@pytest.mark.slow
def test_a_request_settles_a_bounded_number_of_partitions_and_bytes():
    room = Room(max_ahead=1_000_000)
    numbers = room.topic("many", MAX_SETTLED + 1 if MAX_SETTLED < 1000 else 1000)
    too_many = [settled(numbers[n % len(numbers)]) for n in range(MAX_SETTLED + 1)]
    refuses(room, numbers[0], LimitExceeded, f"settles {MAX_SETTLED + 1} partitions", *too_many)
    peer = room.peer()
    for _ in range(100):
        peer.send(numbers[0], *[b""] * 4000)
    bits = int("10" * 199_000, 2)
    wide = Settled(numbers[0], 0, 0, encode_offsets(OffsetSet.from_bits(0, bits), 0))
    text = f"{len(wide.finished) * 2} bytes, {MAX_FINISHED_BYTES} are allowed"
    refuses(room, numbers[0], LimitExceeded, text, wide, wide)
    settle(room, offsets=[PartitionOffset(numbers[0], 0)])
    sizes = len(wide.finished), MAX_FINISHED_BYTES - len(wide.finished)
    higher = [Settled(numbers[0], 0, 800, b"\x02" + b"\x55" * (size - 1)) for size in sizes]
    recorded = MAX_FINISHED_BYTES + 2 * 800 // 8
    refuses(room, numbers[0], LimitExceeded, f"take {recorded} bytes", *higher)


def test_the_bounds_of_a_record_are_of_all_groups_of_a_request_together(room):
    numbers = room.topic("many", MAX_SETTLED // 2 + 1)
    positions = [GroupPositions(name, ID, [], [settled(number) for number in numbers]) for name in "gh"]
    for kind, fields in ((messages.Prepare, (1, XID, None)), (messages.Commit, (0, 1))):
        answer = room.peer().ask(kind, *fields, positions=positions)
        assert f"settles {len(numbers) * 2} partitions" in refused(answer, "LimitExceeded")
    assert not room.engine.failed


def test_a_request_has_only_so_many_runs_and_unfinished_offsets_as_are_judged_in_a_turn(room, partition):
    def sparse(runs):
        return Settled(partition, 0, 0, b"\x01" + b"\x64\x01" * runs)

    said = [Unfinished(offset) for offset in range(30)]
    allowed = MAX_REQUEST_ENTRIES - 1
    refuses(room, partition, LimitExceeded, f"settles {allowed + 2} .*runs", sparse(allowed + 1))
    refuses(room, partition, OffsetOutOfRange, "not below", sparse(allowed))
    both = replace(sparse(allowed - len(said) + 1), unfinished=said)
    refuses(room, partition, LimitExceeded, f"settles {allowed + 2} .*unfinished", both)


def test_a_claim_fences_what_its_predecessor_settles(room, partition):
    claimed = room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], ID)
    [(_, generation)] = claimed.claims
    settle(room, settled(partition, 1, generation=generation))
    room.peer().ask(messages.ClaimPartitions, "g", "n", [partition])
    refuses(room, partition, GenerationFenced, "'n'", settled(partition, 2, generation=generation))
    answer = prepare(room, settled(partition, 2, generation=generation))
    assert "'n'" in refused(answer, "GenerationFenced")


class TestHolds:
    """Others are refused for as long as a transaction is prepared, by name, and only where they meet it."""

    @pytest.fixture
    def held(self, room, partition):
        settle(room, settled(partition, 0, 1, 5))
        assert isinstance(
            prepare(room, replace(retried(partition, (7,)), finished=b"\x02\x08")), messages.Done
        )
        return partition

    def test_other_offsets_go_on(self, room, held):
        settle(room, settled(held, 2, 4, 8))
        assert state(room, held) == (3, "4-5, 8", {})
        assert isinstance(prepare(room, settled(held, 9), xid=Xid(1, b"y", b"")), messages.Done)
        assert isinstance(end(room, messages.Commit), messages.Committed)
        assert state(room, held) == (6, "8", {7: 1})
        assert isinstance(end(room, messages.Commit, Xid(1, b"y", b"")), messages.Committed)
        assert state(room, held) == (6, "8-9", {7: 1})

    @pytest.mark.parametrize("offset", [3, 7])
    def test_a_held_offset_is_refused_with_its_holder(self, room, held, offset):
        text = (
            f"offset {offset} of partition {held} for group 'g' is held by the prepared transaction .*{XID}"
        )
        refuses(room, held, OffsetPending, text, settled(held, offset))
        refuses(room, held, OffsetPending, text, settled(held, unfinished=[(offset, 5)]))
        one_phase = room.peer().ask(
            messages.Commit, 0, 1, positions=[GroupPositions("g", ID, [], [settled(held, offset)])]
        )
        assert str(XID) in refused(one_phase, "OffsetPending")

    @pytest.mark.parametrize("position", [0, 2, 4, 20])
    def test_a_position_that_would_pass_it_or_go_back_behind_it_is_refused(self, room, held, position):
        refuses(room, held, OffsetPending, "offset 3", offsets=[PartitionOffset(held, position)])

    def test_a_position_below_it_is_taken(self, room, held):
        settle(room, offsets=[PartitionOffset(held, 3)])
        assert state(room, held) == (3, "5", {})

    def test_it_is_shown_as_pending_and_the_group_cannot_be_deleted(self, room, held):
        [shown] = room.peer().ask(messages.FetchOffsets, "g", None).offsets
        assert str(XID) in shown.pending_by
        answer = room.peer().ask(messages.DeleteGroup, "g", room.group_id())
        assert str(XID) in refused(answer, "OffsetPending")
        end(room, messages.Rollback)
        [shown] = room.peer().ask(messages.FetchOffsets, "g", None).offsets
        assert shown.pending_by == ""

    def test_the_transaction_is_listed_with_its_group_also_after_a_restart(self, room, held):
        for _ in range(2):
            [listed] = room.peer().ask(messages.ListTransactions).transactions
            assert listed.groups == ["g"]
            room.engine.mark()
            room.engine.sync()
            room.engine.housekeeping.checkpoint_inline()
            room.restart()

    def test_all_of_it_is_so_after_a_restart(self, room, held):
        room.restart()
        refuses(room, held, OffsetPending, "offset 3", settled(held, 3))
        settle(room, settled(held, 2))
        assert isinstance(end(room, messages.Commit), messages.Committed)
        assert state(room, held) == (4, "5", {7: 1})


class TestRequests:
    """The requests that settle offsets, plain and in a transaction."""

    def commit(self, room, *what, offsets=(), expected=None):
        return room.peer().ask(messages.CommitOffsets, "g", list(offsets), ID, expected, list(what))

    def test_a_plain_commit_finishes_offsets(self, room, partition):
        assert isinstance(self.commit(room, settled(partition, 0, 3)), messages.Done)
        assert state(room, partition) == (1, "3", {})
        assert "max_ahead" in refused(self.commit(room, settled(partition, 39)), "TooFarAhead")

    def test_it_moves_positions_of_other_partitions_in_the_same_step(self, room, partition):
        [other] = room.topic("other")
        room.peer().send(other, b"one")
        at_other = [PartitionOffset(other, 1)]
        moved = self.commit(room, settled(partition, 2), offsets=at_other, expected=[4])
        assert "no position" in refused(moved, "PositionMoved")
        assert isinstance(
            self.commit(room, settled(partition, 2), offsets=at_other, expected=[None]), messages.Done
        )
        assert (state(room, other), state(room, partition)) == ((1, "", {}), (0, "2", {}))

    def test_a_transaction_finishes_offsets_that_were_added_when_it_commits(self, room, partition):
        peer = room.peer()
        for serial, offset in enumerate((0, 2), 1):
            added = (messages.AddOffsets, serial, "g", [], None, 0, ID, [settled(partition, offset)])
            assert peer.ask(*added) is None
            assert state(room, partition)[0] in (None, 1)
            committed = peer.ask(messages.Commit, 0, serial, None, Totals(0, 1, crc32c(b"")))
            assert isinstance(committed, messages.Committed)
        assert state(room, partition) == (1, "2", {})

    @pytest.mark.parametrize(
        ("offset", "generation", "error"),
        [(39, 0, "TooFarAhead"), (40, 0, "OffsetOutOfRange"), (1, 7, "GenerationFenced")],
    )
    def test_an_add_that_cannot_be_settled_dooms_its_transaction(
        self, room, partition, offset, generation, error
    ):
        settle(room, settled(partition, 0))
        peer = room.peer()
        what = settled(partition, offset, generation=generation)
        refused(peer.ask(messages.AddOffsets, 1, "g", [], None, 0, ID, [what]), error)
        refused(peer.ask(messages.Commit, 0, 1, None, Totals(0, 1, crc32c(b""))), "ContentMismatch")
        assert state(room, partition) == (1, "", {})

    def test_an_add_to_a_partition_whose_position_the_transaction_moves_is_refused(self, room, partition):
        peer = room.peer()
        moved = [PartitionOffset(partition, 3)]
        assert peer.ask(messages.AddOffsets, 1, "g", moved, None, 0, ID) is None
        answer = peer.ask(messages.AddOffsets, 1, "g", [], None, 0, ID, [settled(partition, 5)])
        assert "Do one of the two" in refused(answer, "InvalidSetting")


class TestStaged:
    """What an active transaction has added is judged again when it is decided."""

    def added(self, room, *what):
        peer = room.peer()
        assert peer.ask(messages.AddOffsets, 1, "g", [], None, 0, ID, list(what)) is None
        return peer

    def decide(self, peer, kind):
        totals = Totals(0, 1, crc32c(b""))
        if kind == "prepare":
            return peer.ask(messages.Prepare, 1, XID, totals)
        return peer.ask(messages.Commit, 0, 1, None, totals)

    @pytest.mark.parametrize("kind", ["prepare", "commit"])
    def test_another_one_that_was_prepared_first_rolls_it_back(self, room, partition, kind):
        settle(room, settled(partition, 0))
        peer = self.added(room, settled(partition, 3))
        assert isinstance(prepare(room, settled(partition, 3)), messages.Done)
        answer = self.decide(peer, kind)
        assert "has been rolled back" in refused(answer, "OffsetPending")

    @pytest.mark.parametrize("kind", ["prepare", "commit"])
    def test_a_group_that_was_set_back_since_keeps_what_is_below(self, room, partition, kind):
        settle(room, settled(partition, *range(10)))
        peer = self.added(room, settled(partition, 12))
        settle(room, offsets=[PartitionOffset(partition, 4)])
        answer = self.decide(peer, kind)
        assert not isinstance(answer, messages.Refused)
        if kind == "prepare":
            end(room, messages.Commit)
        assert state(room, partition) == (4, "12", {})

    @pytest.mark.parametrize("kind", ["prepare", "commit"])
    def test_one_that_has_become_too_far_ahead_is_rolled_back(self, room, partition, kind):
        settle(room, settled(partition, *range(10)))
        peer = self.added(room, settled(partition, 10 + AHEAD))
        settle(room, offsets=[PartitionOffset(partition, 4)])
        assert "has been rolled back" in refused(self.decide(peer, kind), "TooFarAhead")


class TestWithoutAGap:
    """Of what is finished from the position on nothing is kept, so it may be any number."""

    def finish(self, room, partition, *offsets):
        return room.peer().ask(messages.CommitOffsets, "g", [], ID, None, [settled(partition, *offsets)])

    def test_more_than_max_ahead_is_finished_in_one_step(self, room, partition):
        assert isinstance(self.finish(room, partition, *range(35)), messages.Done)
        assert room.broker.groups.find("g").position(partition) == 35

    def test_also_where_it_closes_a_gap(self, room, partition):
        assert isinstance(self.finish(room, partition, *range(5, 10)), messages.Done)
        assert isinstance(self.finish(room, partition, *range(5), *range(10, 33)), messages.Done)
        assert room.broker.groups.find("g").position(partition) == 33

    def test_what_is_behind_a_gap_is_measured_from_there(self, room, partition):
        refused(self.finish(room, partition, *range(20), 21 + AHEAD), "TooFarAhead")
        assert isinstance(self.finish(room, partition, *range(20), 20 + AHEAD), messages.Done)
        assert room.broker.groups.find("g").position(partition) == 20

    def test_in_a_transaction_and_while_another_holds_a_lower_one(self, room, partition):
        settle(room, offsets=[PartitionOffset(partition, 0)])
        positions = [GroupPositions("g", ID, [], [settled(partition, *range(5, 40))])]
        refused(room.peer().ask(messages.Prepare, 1, XID, positions=positions), "TooFarAhead")
        positions = [GroupPositions("g", ID, [], [settled(partition, *range(5))])]
        assert isinstance(room.peer().ask(messages.Prepare, 1, XID, positions=positions), messages.Done)
        refused(self.finish(room, partition, *range(5, 40)), "TooFarAhead")
        assert isinstance(self.finish(room, partition, *range(5, AHEAD + 1)), messages.Done)
        room.peer().ask(messages.Commit, 0, 0, XID)
        assert room.broker.groups.find("g").position(partition) == AHEAD + 1
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
        assert room.broker.groups.find("g").position(partition) == AHEAD + 1
