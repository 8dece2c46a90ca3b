"""Test that records and rows are shown without their secrets, and are otherwise as they were."""

import pytest

from journal.parties import Actor
from journal.records.access_entries import AccessRow, Effect, Resource, Right, Rule, ScramVerifier, User
from journal.records.access_records import AccessSet, RuleSet, UserRemoved, UserSet
from journal.records.access_secrets import HIDDEN, without_secrets

ANN = Actor("ann", "ops")
VERIFIER = ScramVerifier(b"A" * 32, 15_000, b"B" * 32, b"C" * 32)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (User("alice", VERIFIER, ["DNS:a"]), User("alice", HIDDEN, ["DNS:a"])),
        (UserSet(User("alice", VERIFIER), ANN, 1), UserSet(User("alice", HIDDEN), ANN, 1)),
        (AccessSet(True, False, b"K" * 32, ANN, 4), AccessSet(True, False, HIDDEN, ANN, 4)),
        (AccessRow(True, False, b"K" * 32, 7, 1), AccessRow(True, False, HIDDEN, 7, 1)),
    ],
)
def test_what_is_secret_is_hidden_and_nothing_else(value, shown):
    assert without_secrets(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        User("alice"),
        UserSet(User("alice"), ANN, 1),
        UserRemoved("bob", ANN, 2),
        RuleSet(Rule("alice", Effect.ALLOW, Resource.TOPIC, "t", False, [Right.READ]), ANN, 3),
    ],
)
def test_what_has_no_secret_is_as_it_was(value):
    assert without_secrets(value) == value
