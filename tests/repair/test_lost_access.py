"""Test that a repair says what it has cut off of users and rules: who was sent away may come in again."""

import pytest

from journal.folds.access import AccessFold
from journal.folds.table import client_folds
from journal.formats import filenames
from journal.parties import Actor
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.records.record import AccessSet, Messages, RuleSet, UserRemoved, UserSet
from journal.recovery.start import recover
from journal.repair.access_traces import has_row_of_access
from journal.testing import ManualClock
from journal.wal.reader import JournalEntry
from journal.walks.checkpoint_walk import checkpoint_lsns
from journal.walks.journal_walk import walk_journal
from tests.repair.repair_scene import repaired
from tests.support.builders import small_files
from tests.support.engine_room import GroupRoom, Room, damage

ANN = Actor("ann", "")
RULES = [
    Rule("alice", Effect.ALLOW, Resource.TOPIC, name, False, [right])
    for name, right in (("t", Right.READ), ("t", Right.WRITE), ("u", Right.READ))
]
USER = "what was last said of user {}: whether there is one, its password, certificates, tokens and roles are as before"
MAYBE_OLD = (
    "users, rules and whether everybody has to log in may be older than they were: nobody is let in but over "
    "admin.sock until 'txbroker access confirm'"
)
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
    assert [text for text in texts if "user" in text or "rule" in text or "log in" in text] == [
        *told,
        MAYBE_OLD,
    ]


ENABLED = [
    UserSet(User("root1"), ANN, 1),
    RuleSet(Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]), ANN, 2),
    AccessSet(True, True, bytes(range(32)), ANN, 3),
    UserSet(User("bob"), ANN, 4),
    RuleSet(Rule("bob", Effect.DENY, Resource.TOPIC, "t", False, [Right.READ]), ANN, 5),
]
KEY = AccessSet(False, True, bytes(range(32)), ANN, 1)


class BrokerRoom(Room):
    """A room whose engine has the folds of a broker."""

    def __init__(self):
        super().__init__()
        self.engine.close()
        self.engine = recover(self.filesystem, self.clock, self.settings, client_folds())


def room_of(*records, folds=True):
    """Return a room, each record in a group of its own, with messages behind."""
    room = BrokerRoom() if folds else Room()
    room.topic()
    for record in records:
        room.engine.accept(record)
        room.engine.sync()
    room.send(b"is damaged")
    room.engine.sync()
    room.send(b"is lost")
    room.engine.sync()
    return room


def entries_of(filesystem):
    return [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)]


def damage_record(filesystem, is_meant):
    found = next(each for each in entries_of(filesystem) if is_meant(each.record))
    damage(filesystem, found.path, found.position + 20)


def is_message(record):
    return isinstance(record, Messages)


def access_after(filesystem):
    """Start what was repaired, twice; return what the second start has of users and rules."""
    for _ in range(2):
        engine = recover(filesystem, ManualClock(), small_files(), folds=client_folds())
        access = next(fold for fold in engine.folds if isinstance(fold, AccessFold))
        engine.close()
    return access


@pytest.mark.parametrize("is_on", [True, False])
def test_a_repaired_directory_lets_in_nobody_until_a_person_has_looked(is_on):
    room = room_of(UserSet(User("known"), ANN, 1), AccessSet(is_on, True, bytes(range(32)), ANN, 1))
    filesystem = room.inner.kill_clone()
    damage_record(filesystem, is_message)
    assert MAYBE_OLD in [loss.text for loss in repaired(filesystem).lost]
    access = access_after(filesystem)
    assert (access.is_on, access.is_confirmed, access.demands_login) == (is_on, False, True)
    assert (list(access.users), access.key) == (["known"], bytes(range(32)))


@pytest.mark.parametrize(
    "lost", [KEY, *ENABLED], ids=["key", "user", "rule", "enable", "second user", "denial"]
)
def test_whichever_record_of_users_rules_and_switch_is_damaged_nobody_comes_in_without_confirmation(lost):
    filesystem = room_of(KEY, *ENABLED).inner.kill_clone()
    damage_record(filesystem, lambda record: record == lost)
    assert MAYBE_OLD in [loss.text for loss in repaired(filesystem).lost]
    access = access_after(filesystem)
    assert (access.demands_login, access.is_confirmed, len(access.key)) == (True, False, 32)
    assert access.is_on is ([KEY, *ENABLED].index(lost) > 3)


def test_what_the_checkpoint_has_is_not_confirmed_either():
    room = room_of(KEY, *ENABLED[:2])
    room.checkpoint()
    room.engine.accept(ENABLED[2])
    room.engine.sync()
    room.send(b"proves that it was forced")
    room.engine.sync()
    filesystem = room.inner.kill_clone()
    damage_record(filesystem, lambda record: record == ENABLED[2])
    assert MAYBE_OLD in [loss.text for loss in repaired(filesystem).lost]
    access = access_after(filesystem)
    assert (list(access.users), access.is_on, access.demands_login) == (["root1"], False, True)


def test_one_access_record_that_is_itself_the_damage_is_found_by_its_kind():
    room = room_of(KEY)
    filesystem = room.inner.kill_clone()
    damage_record(filesystem, lambda record: isinstance(record, AccessSet))
    assert MAYBE_OLD in [loss.text for loss in repaired(filesystem).lost]
    assert access_after(filesystem).demands_login


def test_a_damaged_checkpoint_that_had_users_is_a_trace_of_them():
    room = room_of(KEY, *ENABLED)
    room.checkpoint()
    filesystem = room.inner.kill_clone()
    [*_, lsn] = checkpoint_lsns(filesystem)
    path = filenames.checkpoint_file(lsn)
    assert has_row_of_access(filesystem, path)
    damage(filesystem, path, 12)
    assert has_row_of_access(filesystem, path)
    plain = room_of()
    plain.checkpoint()
    [*_, lsn] = checkpoint_lsns(plain.inner)
    assert not has_row_of_access(plain.inner, filenames.checkpoint_file(lsn))


@pytest.mark.parametrize("folds", [True, False], ids=["a broker's", "an embedded one"])
def test_a_directory_that_never_had_users_goes_on_as_before(folds):
    room = room_of(folds=folds)
    filesystem = room.inner.kill_clone()
    damage_record(filesystem, is_message)
    diagnosis = repaired(filesystem)
    assert diagnosis.lost
    assert MAYBE_OLD not in [loss.text for loss in diagnosis.lost]
    access = access_after(filesystem)
    assert (access.is_on, access.is_confirmed, access.demands_login) == (False, True, False)
    assert not access.changed


@pytest.mark.parametrize("is_on", [True, False])
def test_a_repair_that_loses_no_record_locks_out_nobody_where_nobody_had_to_log_in(is_on):
    room = room_of(UserSet(User("known"), ANN, 1), AccessSet(is_on, True, bytes(range(32)), ANN, 1))
    room.checkpoint()
    room.send(b"later")
    room.checkpoint()
    filesystem = room.inner.kill_clone()
    damage(filesystem, filenames.checkpoint_file(checkpoint_lsns(filesystem)[0]), 12)
    diagnosis = repaired(filesystem)
    assert diagnosis.changes
    assert not diagnosis.lost
    access = access_after(filesystem)
    assert (access.is_on, access.is_confirmed) == (is_on, not is_on)
