"""Users and rules are dumped with the names of their fields, in records and in rows; what a password is proven by, and
the key of the logins, is in no line.
"""

import base64
import json

import msgspec
import pytest

from journal.check import JournalEntry, SectionItem
from journal.checkpoints.rows import typed_rows
from journal.folds.access import AccessFold
from journal.formats.checkpoint import Rows
from journal.parties import Actor
from journal.records.access_entries import (
    Effect,
    Quotas,
    Resource,
    Right,
    Rule,
    ScramVerifier,
    TokenSubject,
    User,
)
from journal.records.record import AccessSet, RuleSet, UserRemoved, UserSet
from txbroker.cli.directory.dump_lines import line_json, line_text

SECRETS = [bytes([65 + number]) * 32 for number in range(4)]
SALT, STORED, SERVER, KEY = SECRETS
ALICE = User(
    "alice",
    ScramVerifier(SALT, 15_000, STORED, SERVER),
    ["DNS:a.example"],
    [TokenSubject("https://login.example", "alice@example")],
    ["loaders"],
    Quotas(bytes_in=1000),
)
RULE = Rule("role:loaders", Effect.ALLOW, Resource.TOPIC, "orders-", True, [Right.READ, Right.WRITE])
ANN = Actor("ann", "ops")
NAMED_QUOTAS = dict.fromkeys(Quotas.__struct_fields__) | {"bytes_in": 1000}
NAMED_USER = {
    "name": "alice",
    "scram": "hidden",
    "certificates": ["DNS:a.example"],
    "tokens": [{"issuer": "https://login.example", "subject": "alice@example"}],
    "roles": ["loaders"],
    "quotas": NAMED_QUOTAS,
}
NAMED_RULE = {
    "holder": "role:loaders",
    "effect": "allow",
    "resource": "topic",
    "pattern": "orders-",
    "is_prefix": True,
    "rights": ["read", "write"],
}
RECORDS = [
    UserSet(ALICE, ANN, 1),
    UserRemoved("bob", ANN, 2),
    RuleSet(RULE, ANN, 3),
    AccessSet(True, False, KEY, ANN, 4),
]


def entry(record):
    return JournalEntry("journal/1.journal", 4096, 1, record, memoryview(b""), length=10)


def section(rows):
    return SectionItem(0, Rows("access", rows))


def rows():
    """The rows of the fold in a checkpoint."""
    fold = AccessFold()
    for lsn, record in enumerate([RECORDS[0], *RECORDS[2:]], 7):
        fold.apply(lsn, record, b"")
    return list(fold.snapshot())


def test_a_user_and_a_rule_are_dumped_with_their_names():
    user, removed, rule, access = (line_json(entry(record)) for record in RECORDS)
    assert (user["record"], user["user"], user["by"], user["at"]) == (
        "UserSet",
        NAMED_USER,
        ["ann", "ops"],
        1,
    )
    assert (removed["record"], removed["name"]) == ("UserRemoved", "bob")
    assert (rule["record"], rule["rule"]) == ("RuleSet", NAMED_RULE)
    assert (access["is_on"], access["is_confirmed"], access["key"]) == (True, False, "hidden")


def test_a_user_without_a_password_has_nothing_to_hide():
    assert line_json(entry(UserSet(User("bob"), ANN, 1)))["user"]["scram"] is None


def test_the_rows_of_a_checkpoint_are_dumped_with_their_names():
    line = line_json(section(rows()))
    head, user, rule = line["rows"]
    assert (line["section"], head["key"], head["users"], head["changed"]) == ("Rows", "hidden", 1, 9)
    assert (user, rule) == (NAMED_USER, NAMED_RULE)


def raw():
    """The same rows with one of no known form among them: those behind it are as msgpack has them."""
    known = [msgspec.to_builtins(row, builtin_types=(bytes,)) for row in rows()]
    return typed_rows("access", [known[0], ["no user"], *known[1:]])


def test_rows_of_no_known_form_are_not_shown_for_they_may_hold_anything():
    assert line_json(section(raw()))["rows"] == [line_json(section(rows()))["rows"][0], *["hidden"] * 3]


@pytest.mark.parametrize(
    "item",
    [*map(entry, RECORDS), section(rows()), section(raw())],
    ids=["user", "removed", "rule", "access", "rows", "raw rows"],
)
def test_no_line_has_a_secret_in_whatever_form(item):
    for text in (json.dumps(line_json(item, values=True)), line_text(item, values=True)):
        for secret in SECRETS:
            forms = (secret.decode(), secret.hex(), base64.b64encode(secret).decode()[:40])
            assert not any(form in text for form in forms)
