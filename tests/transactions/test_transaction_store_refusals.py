"""Test what the transaction store refuses: wrong totals, exceeded limits, an xid in use, positions that are held."""

import pytest

from journal.engine.settings import JournalSettings
from journal.errors import (
    ContentMismatch,
    InvalidName,
    LimitExceeded,
    OffsetPending,
    TransactionConflict,
    TransactionRolledBack,
    UnknownPartition,
    UnknownTransaction,
)
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import PartitionOffset, Settled, Unfinished
from journal.transaction_states import Cause, State, Totals
from journal.transactions.limits import TransactionLimits
from journal.transactions.state import weight_of
from journal.xid import Xid
from tests.support.builders import OTHER_SESSION, Place, number, totals, xid
from tests.transactions.transaction_store_scene import (
    METHODS,
    NUMBER,
    OFFSETS,
    ONE,
    ROLLED_BACK,
    SENT,
    STATES,
    TWO,
    XID,
    begin,
    committed,
    doomed,
    forgotten,
    prepared,
    state_of,
)

WRONG = [
    Totals(2, 2, SENT.checksum),
    Totals(3, 1, SENT.checksum),
    Totals(3, 2, SENT.checksum ^ 1),
    totals(TWO, ONE),
    Totals(0, 0, 0),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("phase", ["prepare", "commit in one"])
def test_a_difference_between_sent_and_arrived_rolls_back_whatever_it_is(phase, wrong):
    place = Place()
    begin(place)
    place.journaled()
    with pytest.raises(ContentMismatch, match="It has been rolled back"):
        METHODS[phase](place.transactions, wrong)
    assert [type(each).__name__ for each in place.journaled()] == [ROLLED_BACK]
    assert place.transactions.outcome(NUMBER).cause is Cause.MISMATCH
    with pytest.raises(TransactionRolledBack, match="mismatch"):
        place.transactions.commit(NUMBER, Cause.CLIENT, SENT)


@pytest.mark.parametrize("phase", ["prepare", "commit in one"])
def test_a_transaction_of_which_nothing_arrived_cannot_commit_what_was_sent(phase):
    place = Place()
    with pytest.raises(ContentMismatch):
        METHODS[phase](place.transactions, SENT)
    with pytest.raises(TransactionRolledBack):
        place.transactions.add(NUMBER, 1, ONE, 2)


def test_an_empty_transaction_commits_with_nothing_placed():
    place = Place()
    outcome = place.transactions.commit(NUMBER, Cause.CLIENT, Totals(0, 0, 0))
    assert (outcome.state, outcome.placements) == (State.COMMITTED, [])


def test_a_refused_first_add_dooms_what_follows_it():
    place = Place()
    with pytest.raises(UnknownPartition):
        place.transactions.add(NUMBER, 99, ONE, 2)
    place.transactions.doom(NUMBER)
    with pytest.raises(TransactionConflict, match="rollback only"):
        place.transactions.add(NUMBER, 1, ONE, 2)
    with pytest.raises(TransactionRolledBack, match="one of its adds was refused"):
        place.transactions.commit(NUMBER, Cause.CLIENT, totals(ONE))
    place.engine.sync()
    assert place.values() == []


def limited(**limits):
    return Place(JournalSettings(file_bytes=1 << 20, limits=TransactionLimits(**limits)))


@pytest.mark.parametrize(
    ("limits", "others"),
    [
        ({"messages": 4}, False),
        ({"requests": 2}, False),
        ({"bytes": 2 * len(ONE)}, False),
        ({"total_messages": 4}, True),
        ({"total_bytes": 2 * len(ONE)}, True),
        ({"total_requests": 2}, True),
    ],
    ids=str,
)
def test_an_add_up_to_a_limit_is_taken_and_one_message_more_is_not(limits, others):
    place = limited(**limits)
    place.transactions.add(number(1), 1, ONE, 2)
    place.transactions.add(number(2) if others else number(1), 1, ONE, 2)
    before = state_of(place)
    with pytest.raises(LimitExceeded, match="nothing of this request was stored"):
        place.transactions.add(number(3) if others else number(1), 1, TWO, 1)
    assert state_of(place) == before
    place.transactions.rollback(number(1), Cause.CLIENT)
    place.transactions.add(number(4), 1, TWO, 1)


@pytest.mark.parametrize(
    ("limits", "others"), [({"partitions": 2}, False), ({"total_offsets": 2}, True)], ids=str
)
def test_group_positions_up_to_a_limit_are_taken_and_one_more_is_not(limits, others):
    place = limited(**limits)
    place.transactions.add_offsets(number(1), "g", OFFSETS)
    place.transactions.add_offsets(number(2) if others else number(1), "h", OFFSETS)
    with pytest.raises(LimitExceeded, match="nothing of this request was stored"):
        place.transactions.add_offsets(number(3) if others else number(1), "i", OFFSETS)
    place.transactions.rollback(number(1), Cause.CLIENT)
    place.transactions.add_offsets(number(4), "i", OFFSETS)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_settled_offsets_count_by_what_they_take_also_after_a_restart(others, restarts):
    place = limited(**{"total_offsets" if others else "partitions": 9})
    sparse = OffsetSet.from_bits(0, int("1000" * 36, 2))
    one_more = Settled(1, 0, 0, encode_offsets(sparse, 0), [Unfinished(400, 1), Unfinished(401, 1)])
    assert weight_of([one_more]) == 1 + 2 + 1  # a set of 19 bytes counts as one more
    for serial in (1, 2):
        which = number(serial if others else 1)
        place.transactions.add_offsets(which, f"g{serial}", [], settled=[one_more])
    if others and restarts:
        for serial in (1, 2):
            place.transactions.prepare(number(serial), xid(f"x{serial}"), totals(offsets=1))
        place.restart(checkpoint=True)
    with pytest.raises(LimitExceeded, match="12 group positions"):
        place.transactions.add_offsets(number(3 if others else 1), "h", [], settled=[one_more])
    place.transactions.rollback(number(1), Cause.CLIENT)
    place.transactions.add_offsets(number(4), "h", [], settled=[one_more])


def test_messages_for_more_partitions_than_the_limit_are_refused():
    place = limited(partitions=1)
    place.transactions.add(NUMBER, 1, ONE, 2)
    place.transactions.add(NUMBER, 1, ONE, 2)
    with pytest.raises(LimitExceeded, match="messages for 1 partitions, the limit"):
        place.transactions.add(NUMBER, 2, ONE, 2)


def test_a_one_phase_commit_does_not_move_a_position_that_a_prepared_one_holds():
    place = Place()
    place.transactions.add_offsets(number(2), "g", OFFSETS)
    place.transactions.add_offsets(number(1), "g", OFFSETS)
    place.transactions.prepare(number(1), XID, totals(offsets=1))
    with pytest.raises(OffsetPending):
        place.transactions.commit(number(2), Cause.CLIENT, totals(offsets=1))
    assert number(2) in place.transactions.live


def test_so_many_transactions_and_no_more_whichever_way_they_begin():
    place = limited(transactions=2)
    place.transactions.add(number(1), 1, ONE, 2)
    place.transactions.doom(number(2))
    place.transactions.doom(number(3))
    assert number(3) not in place.transactions.live
    for begins in (
        lambda: place.transactions.add(number(4), 1, ONE, 2),
        lambda: place.transactions.add_offsets(number(4), "g", OFFSETS),
        lambda: place.transactions.prepare(number(4), XID, Totals(0, 0, 0)),
    ):
        with pytest.raises(LimitExceeded, match="2 transactions are undecided, the limit"):
            begins()
    place.transactions.rollback(number(2), Cause.CLIENT)
    place.transactions.prepare(number(4), XID, Totals(0, 0, 0))


def test_serials_begin_at_one():
    with pytest.raises(TransactionConflict, match="serials begin at 1"):
        Place().transactions.add(number(0), 1, ONE, 2)


@pytest.mark.parametrize("holder", [begin, doomed, prepared, committed])
def test_an_xid_that_is_live_or_remembered_is_refused_for_another_transaction(holder):
    place = Place()
    holder(place)
    other = number(1, OTHER_SESSION)
    with pytest.raises(TransactionConflict, match="belongs to transaction"):
        place.transactions.add(other, 1, ONE, 2, XID)
    place.transactions.add(other, 1, ONE, 2)
    with pytest.raises(TransactionConflict, match="belongs to transaction"):
        place.transactions.prepare(other, XID, totals(ONE))
    assert place.transactions.find(XID) == NUMBER
    place.transactions.prepare(other, xid("day-2"), totals(ONE))


def test_an_xid_is_free_again_once_its_transaction_is_forgotten():
    place = Place()
    forgotten(place)
    with pytest.raises(UnknownTransaction, match="ended and was forgotten"):
        place.transactions.find(XID)
    prepared(place, number(2), XID)
    assert place.transactions.find(XID) == number(2)


def test_an_xid_beyond_the_bounds_of_xa_changes_nothing():
    place = Place()
    before = state_of(place)
    with pytest.raises(InvalidName):
        place.transactions.add(NUMBER, 1, ONE, 2, Xid(1, b"", b""))
    assert state_of(place) == before


@pytest.mark.parametrize("state", ["active", "prepared"])
def test_prepare_with_another_xid_than_before_is_refused(state):
    place = Place()
    STATES[state](place)
    before = state_of(place)
    with pytest.raises(TransactionConflict, match="has xid 1:day-1:b, not 1:day-2:b"):
        place.transactions.prepare(NUMBER, xid("day-2"), SENT)
    assert state_of(place) == before


def test_positions_are_held_from_prepare_to_the_outcome_and_others_told_by_whom():
    place = Place()
    store = place.transactions
    store.add_offsets(NUMBER, "g", OFFSETS)
    store.add_offsets(number(2), "g", OFFSETS)
    assert place.groups.holder("g", 1) is None
    store.prepare(NUMBER, XID, totals(offsets=1))
    place.restart()
    store = place.transactions
    assert place.groups.holder("g", 1) == NUMBER
    assert place.groups.holder("g", 2) is place.groups.holder("h", 1) is None
    with pytest.raises(OffsetPending, match=f"held by the prepared transaction {NUMBER}"):
        store.add_offsets(number(3), "g", OFFSETS)
    store.add_offsets(number(3), "h", OFFSETS)
    store.rollback(NUMBER, Cause.CLIENT)
    assert place.groups.holder("g", 1) is None
    store.add_offsets(number(4), "g", OFFSETS)


def test_of_two_that_would_move_one_position_the_second_cannot_prepare_before_the_first_is_decided():
    place = Place()
    store = place.transactions
    for serial in (1, 2):
        store.add_offsets(number(serial), "g", OFFSETS)
    store.prepare(number(1), XID, totals(offsets=1))
    with pytest.raises(OffsetPending):
        store.prepare(number(2), xid("day-2"), totals(offsets=1))
    store.commit(number(1), Cause.CLIENT)
    store.prepare(number(2), xid("day-2"), totals(offsets=1))
    assert place.groups.holder("g", 1) == number(2)


def test_offsets_of_an_unknown_partition_are_refused_whole():
    place = Place()
    with pytest.raises(UnknownPartition):
        place.transactions.add_offsets(NUMBER, "g", [*OFFSETS, PartitionOffset(99, 1)])
    assert place.transactions.live == {}
