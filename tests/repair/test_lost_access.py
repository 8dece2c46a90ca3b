"""Test that a repair says what it has cut off of users and rules: who was sent away may come in again."""

import pytest

from journal.folds.access import AccessFold
from journal.folds.table import client_folds
from journal.parties import Actor
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.records.record import AccessSet, RuleSet, UserRemoved, UserSet
from journal.recovery.start import recover
from journal.testing import ManualClock
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.repair.repair_scene import repaired
from tests.support.builders import small_files
from tests.support.engine_room import GroupRoom, damage

ANN = Actor("ann", "")
RULES = [
    Rule("alice", Effect.ALLOW, Resource.TOPIC, name, False, [right])
    for name, right in (("t", Right.READ), ("t", Right.WRITE), ("u", Right.READ))
]
USER = "what was last said of user {}: whether there is one, its password, certificates, tokens and roles are as before"
SWITCH = "whether everybody has to log in: it is as before"


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([], []),
        (
            [UserSet(User("bob"), ANN, 1), UserSet(User("alice"), ANN, 2)],
            [USER.format("'alice'"), USER.format("'bob'")],
        ),
        ([UserRemoved("known", ANN, 1)], [USER.format("'known'")]),
        (
            [RuleSet(rule, ANN, 1) for rule in RULES],
            ["changes of 2 rules: rights that were taken away may be there again"],
        ),
        ([AccessSet(True, True, bytes(32), ANN, 1)], [SWITCH]),
    ],
    ids=["nothing", "users", "a removal", "rules", "the switch"],
)
def test_what_is_lost_of_users_and_rules_is_named(records, told):
    room = GroupRoom()
    room.topic()
    room.engine.accept(UserSet(User("known"), ANN, 1))
    room.send(b"is damaged")
    for record in records:
        room.engine.accept(record)
    room.send(b"is lost")
    room.engine.sync()
    filesystem = room.inner.kill_clone()
    damaged = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)][-2 - len(records)]
    damage(filesystem, damaged.path, damaged.position + 20)
    texts = [loss.text for loss in repaired(filesystem).lost]
    assert [text for text in texts if "user" in text or "rule" in text or "log in" in text] == told


@pytest.mark.parametrize("is_on", [True, False])
def test_a_repaired_directory_lets_in_nobody_until_a_person_has_looked(is_on):
    room = GroupRoom()
    room.topic()
    room.engine.accept(UserSet(User("known"), ANN, 1))
    room.engine.accept(AccessSet(is_on, True, bytes(range(32)), ANN, 1))
    room.send(b"is damaged")
    room.send(b"is lost")
    room.engine.sync()
    filesystem = room.inner.kill_clone()
    damaged = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)][-2]
    damage(filesystem, damaged.path, damaged.position + 20)
    repaired(filesystem)
    engine = recover(filesystem, ManualClock(), small_files(), folds=client_folds())
    access = next(fold for fold in engine.folds if isinstance(fold, AccessFold))
    assert (access.is_on, access.is_confirmed) == (is_on, not is_on)
    assert (list(access.users), access.key) == (["known"], bytes(range(32)))
    engine.close()
