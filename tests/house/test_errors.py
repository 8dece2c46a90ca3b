"""Test that every public error states in its docstring what state things are in, and travels by its name."""

import inspect
import pkgutil
from importlib import import_module

import pytest

import journal
import txbroker
from journal import errors as journal_errors
from txbroker import errors
from txbroker.errors import by_name

ERRORS = {
    name: value
    for module in (journal_errors, errors)
    for name, value in vars(module).items()
    if inspect.isclass(value) and issubclass(value, Exception) and not name.startswith("_")
}
ROOTS = (errors.RequestRefused, errors.StorageUnavailable, errors.CorruptData, errors.OutcomeUnknown)


def told_state(kind):
    """What the docstrings of an error and of those it derives from say; the nearest first."""
    return [base.__doc__ or "" for base in kind.__mro__ if issubclass(base, errors.TxBrokerError)]


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_tells_in_a_sentence_of_its_own_what_happened(name):
    doc = ERRORS[name].__dict__.get("__doc__") or ""
    assert doc.strip().endswith("."), f"{name} has no docstring of its own"
    assert len(doc) > 30


@pytest.mark.parametrize(
    "name", sorted(ERRORS.keys() - {"TxBrokerError", "PeerViolation", "DeliveryPending"})
)
def test_the_type_tells_whose_fault_it_is_and_whether_the_outcome_is_known(name):
    assert sum(issubclass(ERRORS[name], root) for root in ROOTS) == 1
    states = (
        "Nothing has changed",
        "not what was written",
        "may or may not",
        "nothing was sent",
        "Nothing was",
    )
    assert any(state in doc for doc in told_state(ERRORS[name]) for state in states)


UNSEEN = {
    "UnexpectedSequence": "a client gets SequenceOutOfOrder, with the number in it",
    "AnswerLost": "its operation asks how it ended before anybody sees it",
}
"""Errors that no program sees, and why."""


def test_every_error_of_this_project_that_a_program_may_see_is_in_one_module():
    """``UnknownGroup`` reached clients as a RequestRefused, for it was the broker's own."""
    elsewhere = {
        name
        for package in (journal, txbroker)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.startswith(("txbroker.databases.", "journal.testing."))
        for name, kind in vars(import_module(module.name)).items()
        if inspect.isclass(kind)
        and issubclass(kind, errors.TxBrokerError)
        and getattr(errors, name, None) is not kind
    }
    assert elsewhere == set(UNSEEN)


def test_bytes_that_are_no_protocol_are_told_from_all_others():
    assert errors.PeerViolation.__bases__ == (errors.TxBrokerError,)
    assert "closed" in (errors.PeerViolation.__doc__ or "")


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_found_by_its_name_and_is_the_same_from_either_module(name):
    assert by_name(name) is ERRORS[name]
    assert by_name(name).__name__ == name
    assert getattr(errors, name) is ERRORS[name]


@pytest.mark.parametrize(
    "name",
    ["", "NoSuchError", "Exception", "annotations", "by_name", "_journal_errors", "__name__", "object"],
)
def test_a_name_that_is_no_error_here_is_a_refusal_of_some_kind(name):
    assert by_name(name) is errors.RequestRefused


def test_extras_are_kept_with_the_message():
    out = errors.OffsetOutOfRange("offset 9 of 3 to 5", 3, 5)
    assert (str(out), out.start, out.end) == ("offset 9 of 3 to 5", 3, 5)
    lost = errors.CorruptSegment("bad", "a.log", 7, 10, 12)
    assert (lost.path, lost.position, lost.first_offset, lost.last_offset) == ("a.log", 7, 10, 12)
    assert (errors.CorruptJournal("bad", "j").path, errors.CorruptJournal("bad", "j").position) == ("j", 0)
