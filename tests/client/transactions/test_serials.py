"""Test up to which serial all outcomes have been seen: an abandoned transaction does not stop that for ever."""

import pytest

from journal.transaction_states import State
from journal.xid import Xid
from tests.client.rig import add, send_as_adds
from txbroker import errors
from txbroker.client.transactions.decision import Stage
from txbroker.client.transactions.serials import KEPT
from txbroker.wire.messages import AskOutcome, Commit, Refused

XID = Xid(1, b"g", b"b")


def begun(rig, xid=None):
    transaction = rig.transaction(xid)
    rig.run(add(transaction, b"1"))
    return transaction


def committed(rig):
    """One more, and up to which serial it said that all is seen."""
    transaction = begun(rig)
    rig.run(transaction.commit())
    return next(request.seen for request in reversed(rig.broker.requests) if type(request) is Commit)


def asked(broker):
    return sum(type(request) is AskOutcome for request in broker.requests)


@pytest.fixture
def left(rig):
    """One that was prepared and left: its database may have committed, or not."""
    transaction = begun(rig, XID)
    rig.run(transaction.prepare())
    transaction.leave()
    return transaction


def test_one_that_was_left_is_passed_when_it_is_decided_and_could_be_asked_for_long_enough(rig, broker, left):
    assert [committed(rig), committed(rig)] == [0, 0]
    rig.wait(KEPT)
    committed(rig)  # which asks
    assert (asked(broker), broker.outcomes[left.number]) == (1, State.PREPARED)
    rig.wait(KEPT)
    broker.outcomes[left.number] = State.COMMITTED  # a resolver's doing
    assert committed(rig) == 0  # it is asked for, and others may ask, too
    assert committed(rig) == 0
    assert asked(broker) == 2
    rig.wait(KEPT / 2)
    assert committed(rig) == 0
    rig.wait(KEPT / 2)
    last = committed(rig)
    assert last == left.number.serial + 6
    assert committed(rig) == last + 1
    assert asked(broker) == 2


def test_as_long_as_it_is_not_decided_it_is_not_passed(rig, broker, left):
    for _ in range(5):
        rig.wait(KEPT)
        assert committed(rig) == 0
    assert asked(broker) == 5


def test_one_that_the_broker_has_forgotten_is_passed(rig, broker, left):
    def forgotten(request, data):
        if type(request) is AskOutcome:
            return Refused(request.correlation, "OutcomeForgotten", "long ago")
        return None

    broker.before = forgotten
    rig.wait(KEPT)
    assert committed(rig) == 0
    rig.wait(KEPT)
    assert committed(rig) == 2


def test_an_answer_that_does_not_come_is_asked_for_again(rig, broker, left):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is AskOutcome else None
    for _ in range(3):
        rig.wait(KEPT)
        assert committed(rig) == 0
    assert asked(broker) == 3


def test_one_whose_outcome_its_program_asks_for_after_all_is_seen_at_once(rig, broker):
    transaction = begun(rig)
    broker.before = lambda request, data: (
        Refused(request.correlation, "OutcomeUnknown", "who knows")
        if type(request) in (Commit, AskOutcome)
        else None
    )
    with pytest.raises(errors.OutcomeUnknown):
        rig.run(transaction.commit())
    assert transaction.stage is Stage.DECIDING
    broker.before = lambda request, data: None
    broker.outcomes[transaction.number] = State.COMMITTED
    assert committed(rig) == 0
    rig.run(transaction.commit())
    assert committed(rig) == 2


def test_one_that_ended_as_unknown_and_is_never_asked_for_is_passed_in_the_end(rig, broker):
    transaction = begun(rig)
    broker.before = lambda request, data: (
        Refused(request.correlation, "OutcomeUnknown", "who knows") if type(request) is Commit else None
    )
    with pytest.raises(errors.OutcomeUnknown):
        rig.run(transaction.commit())
    broker.before = lambda request, data: None
    broker.outcomes[transaction.number] = State.ROLLED_BACK
    rig.wait(KEPT)
    assert committed(rig) == 0
    rig.wait(KEPT)
    assert committed(rig) == 2


def test_a_new_session_begins_with_nothing_left(rig, broker, left):
    rig.cut()
    rig.connect()
    again = begun(rig)
    send_as_adds(again)
    assert again.number.serial == left.number.serial
    left.leave()  # of the session before
    for _ in range(3):
        assert committed(rig) == 0
        rig.wait(KEPT)
    assert asked(broker) == 0


def test_one_that_has_ended_is_left_without_a_word(rig, broker):
    transaction = begun(rig)
    rig.run(transaction.commit())
    transaction.leave()
    rig.transaction().leave()  # never begun
    assert committed(rig) == 1
    rig.wait(3 * KEPT)
    assert committed(rig) == 2
    assert asked(broker) == 0
    assert rig.serials._left == {}
