"""Test what changes of users, rules and the switch do: to logins under way, to sessions, and who may make them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from journal.parties import ADMINISTRATOR, Actor
from journal.records.access_entries import (
    DEFAULT_ITERATIONS,
    RIGHTS_ON,
    Effect,
    Resource,
    Right,
    Rule,
    TokenSubject,
    User,
)
from journal.records.record import AccessSet
from tests.broker.access.gate import (
    ALICE_HERE,
    BY_SOCKET,
    SECOND,
    WRITES,
    Door,
    Gate,
    certificate,
    inside,
    pencil,
)
from tests.login.login_room import ALICE, OPEN, TLS
from tests.login.token_issuers import ISSUER
from tests.support.broker_room import Room, refused
from txbroker.broker.access.access_admin import PASSWORD_INTERVAL
from txbroker.broker.sessions.session import SessionState
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import Plain
from txbroker.client.login.verifier import verifier_of
from txbroker.login.throttle import FIRST_DELAY
from txbroker.wire import messages
from txbroker.wire.messages import GoingAway, Welcome


@pytest.fixture
def gate():
    return Gate()


class TestChanges:
    """What is changed of users while a login goes on, or after it."""

    def test_a_user_that_is_removed_amid_its_login_does_not_come_in(self, gate):
        door, client = Door(gate, hello=True), pencil()
        challenge = door.login(client.mechanism, client.first())
        gate.admin.ask(messages.RemoveUser, "alice")
        door.login("", client.answer(challenge.data))
        gate.wait(FIRST_DELAY)
        refused(door.answers[-1], "AuthenticationFailed")

    def test_a_user_that_is_removed_is_sent_away_and_told_so(self, gate):
        door = inside(gate)
        gate.admin.ask(messages.RemoveUser, "alice")
        assert isinstance(door.answers[-1], GoingAway)
        assert "alice was removed" in door.closed[0]

    def test_once_a_login_is_demanded_nobody_is_in_without_one_and_once_it_is_not_everybody_may_be(
        self, gate
    ):
        gate.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
        assert Door(gate).hello()[-1] == "ANONYMOUS"
        door = Door(gate, hello=True)
        assert isinstance(door.login("ANONYMOUS"), Welcome)
        gate.admin.ask(messages.SwitchAccess, messages.Switch.ENABLE)
        assert "a login is needed from now on" in door.closed[0]

    def test_by_an_endpoint_that_others_can_reach_nobody_comes_in_while_the_login_is_switched_off(self, gate):
        """Strangers that were connected before, or came until the endpoint was closed, would have been let in."""
        exposed = Door(gate, replace(TLS, is_exposed=True), hello=True)
        gate.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
        assert "ANONYMOUS" not in Door(gate, replace(TLS, is_exposed=True)).hello()
        exposed.login("ANONYMOUS")
        gate.wait(FIRST_DELAY)
        refused(exposed.answers[-1], "AuthenticationFailed")

    @pytest.mark.parametrize("way", ["password", "certificate"])
    def test_nor_does_a_user_who_was_half_way_in(self, gate, way):
        """Seen to fail: it came in with all rights, for no rule counts then."""
        door = Door(gate, replace(certificate("alice"), is_exposed=True), hello=True)
        gate.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
        answer = door.go_through(pencil()) if way == "password" else door.login("EXTERNAL")
        refused(answer, "AuthenticationFailed")
        assert (door.session.number, len(door.closed)) == (0, 1)

    def test_once_rules_count_again_who_has_logged_in_meanwhile_is_outside_too(self, gate):
        """Seen to fail: what such a session waited with went on, though its user had no right to it."""
        gate.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
        door = inside(gate)
        gate.admin.ask(messages.SwitchAccess, messages.Switch.ENABLE)
        assert "a login is needed from now on" in door.closed[0]
        assert not gate.admin.closed

    def test_a_role_that_takes_a_right_away_ends_the_sessions_of_who_gets_it(self, gate):
        fenced = Rule("role:fenced", Effect.DENY, Resource.TOPIC, "t", True, [Right.READ])
        gate.admin.ask(messages.AlterRule, fenced)
        gate.admin.ask(messages.AlterRule, replace(fenced, holder="role:free", effect=Effect.ALLOW))
        door = inside(gate)
        gate.admin.ask(messages.AlterUser, replace(ALICE_HERE, roles=["free"]), ["roles"])
        assert not door.closed
        gate.admin.ask(messages.AlterUser, replace(ALICE_HERE, roles=["free", "fenced"]), ["roles"])
        assert "a role of alice" in door.closed[0]

    def test_on_a_full_disk_something_can_be_taken_away_only(self, gate, monkeypatch):
        door = inside(gate)
        monkeypatch.setattr(type(gate.engine), "full", True)
        allow = Rule("alice", Effect.ALLOW, Resource.TOPIC, "t", True, [Right.READ])
        refused(gate.admin.ask(messages.AlterRule, allow), "DiskFull")
        refused(gate.admin.ask(messages.AlterUser, User("carol"), [], messages.Existing.NO), "DiskFull")
        deny = replace(allow, effect=Effect.DENY)
        assert isinstance(gate.admin.ask(messages.AlterRule, deny), messages.Rules)
        assert isinstance(gate.admin.ask(messages.AlterRule, WRITES, True), messages.Rules)
        assert isinstance(gate.admin.ask(messages.RemoveUser, "alice"), messages.Done)
        assert door.closed

    def test_what_is_demanded_is_judged_when_the_login_begins_not_at_the_hello(self, gate):
        gate.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
        door = Door(gate, hello=True)
        gate.admin.ask(messages.SwitchAccess, messages.Switch.ENABLE)
        door.login("ANONYMOUS")
        gate.wait(FIRST_DELAY)
        refused(door.answers[-1], "AuthenticationFailed")

    @pytest.mark.parametrize("change", ["removed", "its password", "made again"])
    def test_what_is_changed_while_good_news_are_held_back_lets_nobody_in(self, gate, change):
        Door(gate, hello=True).go_through(pencil("eraser"))
        door = Door(gate, hello=True)
        assert door.go_through(pencil()) is None
        if change == "removed":
            gate.admin.ask(messages.RemoveUser, "alice")
        elif change == "its password":
            user = replace(gate.broker.access.users["alice"], scram=None)
            gate.admin.ask(messages.AlterUser, user, ["scram"])
        else:
            gate.admin.ask(messages.RemoveUser, "alice")
            gate.admin.ask(messages.AlterUser, ALICE_HERE, [], messages.Existing.NO)
        gate.wait(FIRST_DELAY + 0.001)
        refused(door.answers[-1], "StorageUnavailable")
        assert (door.session.number, len(door.closed)) == (0, 1)
        assert gate.broker.entrance.failed == 1, "the wrong password; this was no wrong login"

    def test_what_is_changed_of_others_meanwhile_keeps_nobody_from_logging_in(self, gate):
        """Seen to fail: who changed his own password all the time kept everybody outside."""
        Door(gate, hello=True).go_through(pencil("eraser"))
        door = Door(gate, hello=True)
        assert door.go_through(pencil()) is None
        gate.admin.ask(messages.AlterUser, User("carol"), [], messages.Existing.NO)
        gate.admin.ask(messages.AlterRule, Rule("bob", Effect.DENY, Resource.TOPIC, "t", False, [Right.READ]))
        gate.wait(FIRST_DELAY + 0.001)
        assert isinstance(door.answers[-1], Welcome)

    def test_what_is_changed_while_a_password_is_checked_lets_nobody_in(self, gate):
        door, client = Door(gate, hello=True), Plain("PLAIN", Credentials(user="alice", password="pencil"))
        assert door.login("PLAIN", client.first()) is None
        gate.admin.ask(messages.RemoveUser, "alice")
        gate.worker.step()
        gate.wait(FIRST_DELAY + 0.001)
        assert door.session.number == 0
        assert len(door.closed) == 1

    def test_who_ends_the_own_session_has_its_answer_before_that(self, gate):
        gate.admin.ask(
            messages.AlterUser,
            User("root2", gate.broker.access.users["alice"].scram),
            [],
            messages.Existing.NO,
        )
        gate.admin.ask(
            messages.AlterRule,
            Rule("root2", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]),
        )
        door = Door(gate, hello=True)
        assert isinstance(door.go_through(pencil(user="root2")), Welcome)
        door.answers.clear()
        door.ask(messages.RemoveUser, "root2")
        assert [type(answer) for answer in door.answers] == [messages.Done, GoingAway]


class TestOwnPasswords:
    """Whoever may not administer may replace the password that it has, now and then."""

    @staticmethod
    def change(door, name="alice", iterations=4096, **ways):
        made = User(name, verifier_of("rubber", iterations), **ways)
        return door.ask(messages.AlterUser, made, ["scram"])

    def test_once_it_is_changed_the_new_one_lets_in(self, gate):
        assert isinstance(self.change(inside(gate)), messages.Done)
        assert isinstance(Door(gate, hello=True).go_through(pencil("rubber")), Welcome)

    def test_it_is_not_changed_all_the_time_for_each_change_is_forced_and_told(self, gate):
        door = inside(gate)
        assert isinstance(self.change(door), messages.Done)
        refused(self.change(door), "LimitExceeded")
        gate.wait(PASSWORD_INTERVAL / SECOND)
        assert isinstance(self.change(door), messages.Done)

    def test_a_request_that_comes_a_second_time_has_changed_it_once(self, gate):
        door, made = inside(gate), User("alice", verifier_of("rubber", 4096))
        changed = []
        for _ in range(2):
            assert isinstance(door.ask(messages.AlterUser, made, ["scram"]), messages.Done)
            changed.append(gate.broker.access.changed)
        assert changed[0] == changed[1]

    def test_it_has_no_more_iterations_than_others_for_the_broker_computes_them(self, gate):
        door = inside(gate)
        refused(self.change(door, iterations=DEFAULT_ITERATIONS + 1), "LimitExceeded")
        assert isinstance(self.change(door, iterations=DEFAULT_ITERATIONS), messages.Done)

    def test_who_has_none_gives_itself_none(self, gate):
        """Or a token that ends would let in for good."""
        gate.admin.ask(messages.AlterUser, replace(ALICE_HERE, scram=None), ["scram"])
        door = Door(gate, certificate("alice"), hello=True)
        assert isinstance(door.login("EXTERNAL"), Welcome)
        refused(self.change(door), "AccessDenied")

    def test_anothers_is_for_administrators(self, gate):
        gate.admin.ask(messages.AlterUser, User("carol", ALICE.scram), [], messages.Existing.NO)
        refused(self.change(inside(gate), "carol"), "AccessDenied")


def test_whoever_is_to_administer_must_have_a_way_in_that_lets_in_here(gate):
    """Seen to fail: a token counted, though nobody's tokens are trusted."""
    users = {
        "password": User("one", ALICE.scram),
        "certificate": User("one", None, ["CN=one"]),
        "token": User("one", None, [], [TokenSubject(ISSUER, "one")]),
        "token of another": User("one", None, [], [TokenSubject("https://other", "one")]),
        "none": User("one"),
    }
    found = {way: gate.broker.entrance.logins.can_log_in(user) for way, user in users.items()}
    assert found == {
        "password": True,
        "certificate": True,
        "token": True,
        "token of another": False,
        "none": False,
    }


@pytest.mark.parametrize("is_on", [True, False])
def test_a_directory_that_was_repaired_lets_in_the_administrator_alone_until_he_confirms(is_on):
    room = Room()
    key, now = bytes(32), room.engine.now()
    room.engine.accept(AccessSet(is_on, False, key, Actor("txbroker repair"), now))
    for facts in (OPEN, certificate("alice")):
        door = Door(room, facts, hello=True)
        assert "ANONYMOUS" not in door.offered
        assert not isinstance(door.login("ANONYMOUS"), Welcome)
        room.timers.advance(FIRST_DELAY)
        assert door.session.state is not SessionState.OPEN
    admin = Door(room, BY_SOCKET)
    admin.log_in_as_administrator()
    assert isinstance(admin.ask(messages.SwitchAccess, messages.Switch.CONFIRM), messages.Done)
    rules = admin.ask(messages.ListRules)
    assert (rules.is_on, rules.is_confirmed) == (is_on, True)
    assert ("ANONYMOUS" in Door(room, OPEN, hello=True).offered) is not is_on


@pytest.mark.parametrize("resource", list(Resource))
def test_rights_that_mean_nothing_on_a_resource_are_refused_with_those_that_there_are(gate, resource):
    pattern = "" if resource is Resource.BROKER else "x"
    for right in Right:
        rule = Rule("alice", Effect.DENY, resource, pattern, False, [right])
        answer = gate.admin.ask(messages.AlterRule, rule)
        if right in RIGHTS_ON[resource]:
            assert right in answer.rules[0].rights
        else:
            said = refused(answer, "InvalidSetting")
            known = ", ".join(each.value for each in RIGHTS_ON[resource])
            assert f"no right {right.value} on a {resource.value}, but {known}; nothing has changed" in said
        assert isinstance(gate.admin.ask(messages.AlterRule, rule, True), messages.Rules), (
            "forgotten in any case"
        )


def test_the_administrator_may_do_everything_when_asked_for(gate):
    asked = (Right.FORCE, Resource.TRANSACTION, "x")
    assert gate.admin.ask(messages.CheckAccess, ADMINISTRATOR, *asked).is_allowed
    assert not gate.admin.ask(messages.CheckAccess, "alice", *asked).is_allowed
