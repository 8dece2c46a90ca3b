"""Every method of the transaction store in every state: what is answered, what is journaled, what stays as it was.

Seen to fail: with `_step` left out of `add` a prepared transaction grows, with `outcomes.find` replaced by a plain
lookup what is forgotten is answered "rolled back", with the check of totals left out half a transaction commits.
"""

from dataclasses import replace

import msgspec
import pytest

from journal.errors import (
    ContentMismatch,
    InvalidName,
    LimitExceeded,
    OffsetPending,
    OutcomeForgotten,
    TransactionCommitted,
    TransactionConflict,
    TransactionRolledBack,
    UnknownPartition,
    UnknownTransaction,
)
from journal.journal_settings import JournalSettings
from journal.record import PartitionOffset
from journal.transaction import Cause, State, Totals, Xid
from journal.transaction_limits import TransactionLimits
from journal.transaction_state import Amounts
from tests.builders import OTHER_SESSION, Place, frames, number, totals, xid

ONE, TWO = frames(b"a1", b"a2"), frames(b"b1")
SENT = totals(ONE, TWO)
NUMBER, XID = number(1), xid("day-1")
OFFSETS = [PartitionOffset(1, 5)]


def begin(place, which=NUMBER, name=XID):
    place.transactions.add(which, 1, ONE, 2, name, owner="me")
    place.transactions.add(which, 2, TWO, 1)


def doomed(place):
    begin(place)
    place.transactions.doom(NUMBER)


def prepared(place, which=NUMBER, name=XID):
    begin(place, which, name)
    place.transactions.prepare(which, name, SENT)


def committed(place):
    prepared(place)
    place.transactions.commit(NUMBER, Cause.CLIENT)


def rolled_back(place):
    begin(place)
    place.transactions.rollback(NUMBER, Cause.CLIENT)


def forgotten(place):
    committed(place)
    place.transactions.forget(NUMBER)


STATES = {
    "unknown": lambda place: None,
    "active": begin,
    "doomed": doomed,
    "prepared": prepared,
    "committed": committed,
    "rolled back": rolled_back,
    "forgotten": forgotten,
}
METHODS = {
    "add": lambda store, sent: store.add(NUMBER, 1, ONE, 2),
    "add offsets": lambda store, sent: store.add_offsets(NUMBER, "g", OFFSETS),
    "prepare": lambda store, sent: store.prepare(NUMBER, XID, sent),
    "commit in one": lambda store, sent: store.commit(NUMBER, Cause.CLIENT, sent),
    "commit": lambda store, sent: store.commit(NUMBER, Cause.CLIENT),
    "rollback": lambda store, sent: store.rollback(NUMBER, Cause.CLIENT),
    "refused add": lambda store, sent: store.doom(NUMBER),
    "disconnect": lambda store, sent: store.disconnect(NUMBER.session),
    "timeout": lambda store, sent: store.expire(10_000_000, 1_000_000),
    "forget": lambda store, sent: store.forget(NUMBER, "me"),
}
ADDED, OFFSETS_ADDED, PREPARED = "TransactionAdded", "TransactionOffsetsAdded", "TransactionPrepared"
COMMITTED, ROLLED_BACK, FORGOTTEN = "TransactionCommitted", "TransactionRolledBack", "TransactionsForgotten"
DONE = TransactionCommitted
GONE = TransactionRolledBack
CONFLICT = TransactionConflict
LOST = OutcomeForgotten
# Columns as STATES: what is journaled, or the error, or both of them for a doomed one.
MATRIX = {
    "add": [ADDED, ADDED, CONFLICT, CONFLICT, DONE, GONE, LOST],
    "add offsets": [OFFSETS_ADDED, OFFSETS_ADDED, CONFLICT, CONFLICT, DONE, GONE, LOST],
    "prepare": [PREPARED, PREPARED, (GONE, ROLLED_BACK), None, DONE, GONE, LOST],
    "commit in one": [COMMITTED, COMMITTED, (GONE, ROLLED_BACK), COMMITTED, None, GONE, LOST],
    "commit": [GONE, CONFLICT, (GONE, ROLLED_BACK), COMMITTED, None, GONE, LOST],
    "rollback": [None, ROLLED_BACK, ROLLED_BACK, ROLLED_BACK, DONE, None, LOST],
    "refused add": [None, None, None, None, None, None, None],
    "disconnect": [None, ROLLED_BACK, ROLLED_BACK, None, None, None, None],
    "timeout": [None, ROLLED_BACK, ROLLED_BACK, None, None, None, None],
    "forget": [UnknownTransaction, CONFLICT, CONFLICT, CONFLICT, FORGOTTEN, FORGOTTEN, LOST],
}
CELLS = [
    pytest.param(method, state, cell, id=f"{method} × {state}")
    for method, cells in MATRIX.items()
    for state, cell in zip(STATES, cells, strict=True)
]
SETTLED = {"prepared", "committed", "rolled back", "forgotten"}


def state_of(place):
    """All that the store holds, as a checkpoint and its questions would tell it."""
    store = place.transactions
    rows = [msgspec.to_builtins(row) for row in store.snapshot()]
    return (
        rows,
        dict(store.live_xids),
        dict(store._pending_offsets),
        dict(store._partitions),
        replace(store._totals),
    )


def check_cell(place, method, state, cell):
    place.clock.advance(20_000_000)
    error, record = (
        cell if isinstance(cell, tuple) else (cell, None) if isinstance(cell, type) else (None, cell)
    )
    before, logs = state_of(place), [place.values(1), place.values(2)]
    place.journaled()
    sent = Totals(0, 0, 0) if state == "unknown" else SENT
    if error is None:
        METHODS[method](place.transactions, sent)
    else:
        with pytest.raises(error, match=str(NUMBER)) as caught:
            METHODS[method](place.transactions, sent)
        assert type(caught.value) is error
    assert [type(each).__name__ for each in place.journaled()] == ([record] if record else [])
    if record is None and (method != "refused add" or state not in ("unknown", "active")):
        assert state_of(place) == before
    place.engine.sync()
    if record != COMMITTED or state == "unknown":
        assert [place.values(1), place.values(2)] == logs
    else:
        assert [place.values(1), place.values(2)] == [[b"a1", b"a2"], [b"b1"]]


@pytest.mark.parametrize(("method", "state", "cell"), CELLS)
def test_each_method_in_each_state_answers_and_journals_as_the_table_says(method, state, cell):
    place = Place()
    STATES[state](place)
    place.engine.sync()
    check_cell(place, method, state, cell)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("state", sorted(SETTLED))
def test_what_is_settled_is_answered_the_same_after_a_restart(state, checkpoint):
    for method, cells in MATRIX.items():
        place = Place()
        STATES[state](place)
        before = state_of(place)
        place.restart(checkpoint)
        assert state_of(place) == before
        check_cell(place, method, state, cells[list(STATES).index(state)])


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("state", ["active", "doomed"])
def test_what_was_active_is_rolled_back_by_a_restart(state, checkpoint):
    place = Place()
    STATES[state](place)
    place.restart(checkpoint)
    assert place.transactions.live == {}
    assert place.transactions._totals == Amounts()
    outcome = place.transactions.outcome(NUMBER)
    assert (outcome.state, outcome.cause) == (State.ROLLED_BACK, Cause.RESTART)
    assert place.values(1) == place.values(2) == []


# -- what was sent, and what arrived ----------------------------------------------------------------


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


# -- limits -----------------------------------------------------------------------------------------


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


# -- xids -------------------------------------------------------------------------------------------


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


# -- offsets ----------------------------------------------------------------------------------------


def test_positions_are_held_from_prepare_to_the_outcome_and_others_told_by_whom():
    place = Place()
    store = place.transactions
    store.add_offsets(NUMBER, "g", OFFSETS)
    store.add_offsets(number(2), "g", OFFSETS)
    assert store.pending_offset("g", 1) is None
    store.prepare(NUMBER, XID, totals(offsets=1))
    place.restart()
    store = place.transactions
    assert store.pending_offset("g", 1).number == NUMBER
    assert store.pending_offset("g", 2) is store.pending_offset("h", 1) is None
    with pytest.raises(OffsetPending, match=f"held by transaction {NUMBER}"):
        store.add_offsets(number(3), "g", OFFSETS)
    store.add_offsets(number(3), "h", OFFSETS)
    store.rollback(NUMBER, Cause.CLIENT)
    assert store.pending_offset("g", 1) is None
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
    assert store.pending_offset("g", 1).number == number(2)


def test_offsets_of_an_unknown_partition_are_refused_whole():
    place = Place()
    with pytest.raises(UnknownPartition):
        place.transactions.add_offsets(NUMBER, "g", [*OFFSETS, PartitionOffset(99, 1)])
    assert place.transactions.live == {}
