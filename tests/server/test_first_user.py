"""Test that the first user is made in a directory that nobody has used, and that a death leaves one that is known."""

import pytest

from journal.folds.table import client_folds
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.recovery.start import recover
from journal.testing import (
    FaultFilesystem,
    FaultPlan,
    ManualClock,
    MemoryFilesystem,
    PowerCut,
    cut_power_at,
)
from tests.support.broker_room import Room
from tests.support.builders import small_files
from tests.support.crash_scene import ENDS
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import InvalidSetting
from txbroker.server.first_user import Found, make_first_user
from txbroker.server.settings.config import Config, ServiceSettings
from txbroker.wire import messages

CONFIG = Config(ServiceSettings(data="data"), BrokerSettings(), small_files())
ADMIN = User("admin", verifier_of("a password", 4_096))


def made(filesystem, user=ADMIN):
    return make_first_user(filesystem, CONFIG, user, "a test")


def broker_on(filesystem):
    return Broker(
        recover(filesystem, ManualClock(monotonic=1), CONFIG.journal, folds=client_folds()), CONFIG.broker
    )


def rules_of(broker):
    return [str(rule) for rule in broker.access.rules.values()]


def test_a_new_directory_has_one_user_who_may_administer_and_lets_in_nobody_without_a_login():
    filesystem = MemoryFilesystem()
    assert made(filesystem) is Found.UNUSED
    broker = broker_on(filesystem)
    assert list(broker.access.users.values()) == [ADMIN]
    assert rules_of(broker) == ["allow admin describe,backup,administer broker"]
    assert (broker.access.is_on, broker.access.is_confirmed) == (True, True)
    broker.engine.close()


def test_a_second_user_is_never_made_so():
    filesystem = MemoryFilesystem()
    made(filesystem)
    other = User("other", verifier_of("another", 4_096))
    assert made(filesystem, other) is Found.CLOSED
    broker = broker_on(filesystem)
    assert list(broker.access.users) == ["admin"]
    broker.engine.close()


@pytest.mark.parametrize("what", ["topic", "queue", "user", "rule"])
def test_a_directory_that_is_used_without_a_login_is_left_as_it_is(what):
    room = Room()
    peer = room.peer()
    match what:
        case "topic":
            room.topic()
        case "queue":
            peer.ask(messages.DeclareQueue, "tasks")
        case "user":
            peer.ask(messages.AlterUser, ADMIN, [], messages.Existing.NO)
        case "rule":
            rule = Rule("admin", Effect.ALLOW, Resource.BROKER, "", False, [Right.DESCRIBE])
            peer.ask(messages.AlterRule, rule, False)
    room.engine.sync()
    room.engine.close()
    assert made(room.filesystem) is Found.OPEN
    broker = broker_on(room.filesystem)
    assert not broker.access.is_on
    broker.engine.close()


def test_who_could_never_log_in_is_refused_and_leaves_the_directory_unused():
    filesystem = MemoryFilesystem()
    with pytest.raises(InvalidSetting, match="no user that can log in"):
        made(filesystem, User("admin"))
    assert made(filesystem) is Found.UNUSED


def deaths():
    """What each death leaves: of every operation, with all, nothing and parts of what was not forced; then kills."""
    for nth in range(1, 400):
        inner = MemoryFilesystem()
        plan = FaultPlan([], on_operation=cut_power_at(nth))
        try:
            made(FaultFilesystem(inner, plan))
        except PowerCut:
            cut = True
        else:
            cut = False
        for seed, survive in ENDS:
            yield cut, True, inner.crash_clone(seed, survive)
        yield cut, False, inner.kill_clone()
        if not cut:
            assert nth > 10, "hardly anything was cut"
            return
    pytest.fail("it does not end")


@pytest.mark.slow
def test_a_death_leaves_it_unused_or_closed_and_only_a_power_cut_perhaps_a_user_and_no_login():
    found = set()
    for was_cut, by_power, filesystem in deaths():
        state = made(filesystem)
        found.add((by_power, state))
        if not was_cut:
            assert state is Found.CLOSED, "it was done"
        if state is not Found.OPEN:
            broker = broker_on(filesystem)
            assert broker.access.is_on
            assert list(broker.access.users) == ["admin"]
            broker.engine.close()
    assert (False, Found.OPEN) not in found
    assert found >= {
        (by_power, state) for by_power in (True, False) for state in (Found.UNUSED, Found.CLOSED)
    }
