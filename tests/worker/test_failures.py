"""Test what an exception means for the message whose work it ended."""

import sqlite3

import pytest

from txbroker import errors
from txbroker.worker.failures import Meaning, meaning_of


@pytest.mark.parametrize(
    ("error", "by_handler", "meaning"),
    [
        (ValueError("x"), True, Meaning.FAILED),
        (sqlite3.OperationalError("no such table"), True, Meaning.FAILED),
        (errors.WrongValue("x"), True, Meaning.FAILED),
        (errors.OutcomeUnknown("x"), True, Meaning.FAILED),
        (errors.LimitExceeded("x"), True, Meaning.FAILED),
        (errors.TransactionRolledBack("x"), True, Meaning.AGAIN),
        (errors.ConnectionUnavailable("x"), True, Meaning.AGAIN),
        (errors.GenerationFenced("x"), True, Meaning.LOST),
        (errors.GenerationFenced("x"), False, Meaning.LOST),
        (errors.OffsetPending("x"), False, Meaning.AGAIN),
        (errors.TransactionRolledBack("x"), False, Meaning.AGAIN),
        (errors.HeuristicallyRolledBack("x"), False, Meaning.AGAIN),
        (errors.DiskFull("x"), False, Meaning.AGAIN),
        (errors.OutcomeUnknown("x"), False, Meaning.UNDECIDED),
        (errors.RequestTimedOut("x"), False, Meaning.UNDECIDED),
        (errors.DecisionTableMissing("x"), False, Meaning.FATAL),
        (errors.BrokerReplaced("x"), False, Meaning.FATAL),
        (errors.Misuse("x"), False, Meaning.FATAL),
        (sqlite3.OperationalError("database is locked"), False, Meaning.AGAIN),
        (ConnectionRefusedError("x"), False, Meaning.AGAIN),
        (sqlite3.IntegrityError("FOREIGN KEY constraint failed"), False, Meaning.FAILED),
    ],
)
def test_each_exception_has_one_meaning(error, by_handler, meaning):
    assert meaning_of(error, by_handler, may_ask=True) is meaning


def test_without_anybody_to_ask_an_unknown_outcome_ends_the_worker():
    assert meaning_of(errors.OutcomeUnknown("x"), False, may_ask=False) is Meaning.FATAL


def test_what_no_message_is_to_blame_for_ends_the_worker():
    assert meaning_of(ValueError("no such dialect"), False, may_ask=False) is Meaning.FATAL


def test_a_limit_is_the_messages_fault_unless_earlier_ones_have_to_be_finished_first():
    assert meaning_of(errors.TooFarAhead("max_ahead"), False, may_ask=True) is Meaning.LATER
    assert meaning_of(errors.LimitExceeded("too large"), False, may_ask=True) is Meaning.FAILED
