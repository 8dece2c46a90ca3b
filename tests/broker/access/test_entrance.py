"""Test the entrance: from a hello over a login, at once or step by step, to a session, and to the end of the login."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from journal.folds.table import client_folds
from journal.parties import ADMINISTRATOR, Actor, Owner
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
from journal.recovery.start import recover
from journal.testing import MemoryFilesystem
from journal.transaction_states import State
from tests.login.login_room import ALICE, OPEN, TLS
from tests.login.token_issuers import AUDIENCE, ISSUER, pem, token
from tests.support.broker_room import Peer, Room, frames, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.access.access_admin import PASSWORD_INTERVAL
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.session import SessionState
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import ClientExchange, Plain, Scram
from txbroker.client.login.verifier import verifier_of
from txbroker.login.facts import ConnectionFacts
from txbroker.login.throttle import FIRST_DELAY, LONGEST_DELAY
from txbroker.login.tokens import issuer_of
from txbroker.wire import messages
from txbroker.wire.messages import MAX_LOGIN_DATA, Challenge, FormerSession, GoingAway, Offered, Welcome
from txbroker.wire.secret import Secret

SECOND = 1_000_000
ROOT = User("root1", None, ["CN=root"])
ADMINISTERS = Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER])
WRITES = Rule("alice", Effect.ALLOW, Resource.TOPIC, "", True, [Right.WRITE])
BY_SOCKET = ConnectionFacts(address="unix", secure=True, administrator=True)


def certificate(name: str) -> ConnectionFacts:
    """The facts of a connection whose client has shown a certificate with that name."""
    return replace(TLS, peer_names=(f"CN={name}",))


class Gate(Room):
    """A broker that demands a login: alice comes in by "pencil", by a certificate or by a token, root1 administers.

    Passwords that are sent themselves are checked by a thread that tests step by hand.
    """

    def __init__(self, **settings: Any) -> None:
        self.worker = ManualWorker()
        super().__init__(**settings)
        admin = Door(self, BY_SOCKET)
        admin.log_in_as_administrator()
        for command in (
            (messages.AlterUser, ALICE_HERE, [], messages.Existing.NO),
            (messages.AlterUser, ROOT, [], messages.Existing.NO),
            (messages.AlterRule, ADMINISTERS),
            (messages.AlterRule, WRITES),
            (messages.SwitchAccess, messages.Switch.ENABLE),
        ):
            answer = admin.ask(*command)
            assert not isinstance(answer, messages.Refused), answer
        self.admin = admin

    def made_broker(self) -> Broker:
        return Broker(
            self.engine, self.settings, call_later=self.timers.callLater, run_passwords=self.worker.submit,
            issuers=[issuer_of(ISSUER, AUDIENCE, pem("RSA"), "keys")],
        )  # fmt: skip

    def wait(self, seconds: float) -> None:
        """Let time pass, and what is due by it happen; nothing ends a login by itself."""
        self.clock.advance(round(seconds * SECOND))
        self.timers.advance(seconds)
        self.engine.sync()

    def wall(self) -> int:
        return self.clock.wall() // SECOND


ALICE_HERE = User("alice", ALICE.scram, ["CN=alice"], [TokenSubject(ISSUER, "alice-7")])


class Door(Peer):
    """A connection with these facts on which nobody has said hello. ``held`` has when its requests are held back."""

    def __init__(self, room: Room, facts: ConnectionFacts = TLS, hello: bool = False) -> None:
        super().__init__(room, f"{facts.address}:5", hello=False, facts=facts)
        self.room = room
        self.held: list[bool] = []
        self.session.hold = self.held.append
        if hello:
            self.offered = self.hello()

    def hello(self) -> list[str]:
        offered = self.ask(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
        assert isinstance(offered, Offered), offered
        return offered.mechanisms

    def login(self, mechanism: str, data: bytes = b"", after: FormerSession | None = None) -> Any:
        """Say a step of a login; return the answer."""
        return self.ask(messages.Login, mechanism, data, after)

    def log_in_as_administrator(self) -> Welcome:
        assert self.hello()[0] == "EXTERNAL"
        welcome = self.login("EXTERNAL")
        assert isinstance(welcome, Welcome), welcome
        return welcome

    def go_through(self, client: ClientExchange, after: FormerSession | None = None) -> Any:
        """Have the client log in; return the broker's last answer, which the client has verified if it is a welcome."""
        answer = self.login(client.mechanism, client.first(), after)
        while isinstance(answer, Challenge):
            answer = self.login("", client.answer(answer.data))
        if isinstance(answer, Welcome):
            client.finish(answer.data)
            self.former = FormerSession(answer.session, answer.start, answer.secret)
        return answer


def pencil(password: str = "pencil", user: str = "alice") -> Scram:
    return Scram("SCRAM-SHA-256", Credentials(user=user, password=password), None)


def bearer(**claims: Any) -> bytes:
    return f"n,,\x01auth=Bearer {token(**claims)}\x01\x01".encode()


def inside(room: Room, facts: ConnectionFacts = TLS, **choices: Any) -> Door:
    """Return alice's connection, logged in."""
    door = Door(room, facts, hello=True)
    welcome = door.go_through(pencil(), **choices)
    assert isinstance(welcome, Welcome), welcome
    return door


@pytest.fixture
def gate():
    return Gate()


class TestStates:
    def test_whoever_need_not_log_in_is_in_with_a_hello_and_a_login_that_come_together(self):
        room = Room()
        door = Door(room)
        said = [
            door.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester"),
            door.tell(messages.Login, "ANONYMOUS"),
            door.tell(messages.Ping),
        ]
        assert [type(each) for each in door.answers] == [Offered, Welcome, messages.Done]
        assert [each.correlation for each in door.answers] == said
        assert room.broker.sessions == {door.session.number: door.session}
        assert (door.session.rights, door.answers[1].valid_for, door.answers[1].data) == (None, 0, b"")
        assert room.broker.entrance.succeeded == 0, "nobody has proven anything"

    def test_what_is_offered_depends_on_the_connection(self, gate):
        assert Door(gate, TLS).hello() == ["OAUTHBEARER", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN"]
        assert Door(gate, OPEN).hello() == ["SCRAM-SHA-256"]
        assert Door(gate, certificate("alice")).hello()[0] == "EXTERNAL"
        assert Door(Room(), OPEN).hello() == ["SCRAM-SHA-256", "ANONYMOUS"]

    def test_before_the_login_has_succeeded_there_is_no_session(self, gate):
        door = Door(gate, hello=True)
        before = dict(gate.broker.sessions)
        client = pencil()
        assert isinstance(door.login(client.mechanism, client.first()), Challenge)
        assert (door.session.number, door.session.state) == (0, SessionState.LOGGING_IN)
        assert (gate.broker.sessions, gate.broker.describing.status()["sessions"]) == (before, len(before))

    def test_a_proven_password_makes_a_session_of_its_user(self, gate):
        door = Door(gate, hello=True)
        welcome = door.go_through(pencil())
        assert (welcome.principal, welcome.session) == ("alice", door.session.number)
        assert door.session.owner == Owner("alice", "tester", "192.0.2.7:5")
        assert gate.broker.sessions[welcome.session] is door.session
        assert gate.broker.entrance.succeeded == 2, "the administrator, and alice"
        refused(door.ask(messages.AskStatus), "AccessDenied")

    @pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "CRAM-MD5", "SCRAM-SHA-1", "plain"])
    def test_a_mechanism_that_is_not_offered_is_refused_as_a_wrong_password_is(self, gate, mechanism):
        door, other = Door(gate, hello=True), Door(gate, hello=True)
        assert door.login(mechanism) is None, "it is held back"
        gate.wait(FIRST_DELAY)
        other.go_through(pencil("eraser"))
        gate.wait(LONGEST_DELAY)
        said = [refused(each.answers[-1], "AuthenticationFailed") for each in (door, other)]
        assert said[0] == said[1]
        assert [each.closed for each in (door, other)] == [[text] for text in said]
        assert {each.session.state for each in (door, other)} == {SessionState.CLOSED}

    @pytest.mark.parametrize(
        "command",
        [
            (messages.Ping,),
            (messages.AskStatus,),
            (messages.CreateTopic, "t", 1, messages.TopicSettings()),
            (messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester"),
        ],
        ids=lambda command: command[0].__name__,
    )
    @pytest.mark.parametrize("begun", [False, True], ids=["before it", "amid it"])
    def test_nothing_but_a_login_is_taken_before_its_end(self, gate, command, begun):
        door, client = Door(gate, hello=True), pencil()
        if begun:
            door.login(client.mechanism, client.first())
        assert "the session is logging in" in refused(door.ask(*command), "PeerViolation")
        assert gate.engine.catalog.topics == {}
        assert door.session.login is None
        assert door.login("", b"") is None, "nothing more is heard of it"
        assert len(door.closed) == 1

    def test_a_login_before_the_hello_is_none(self, gate):
        door = Door(gate)
        assert "awaiting hello" in refused(door.login("SCRAM-SHA-256", b"n,,n=alice,r=x"), "PeerViolation")
        assert len(door.closed) == 1

    def test_a_login_goes_on_only_after_it_has_begun(self, gate):
        door = Door(gate, hello=True)
        assert "has not begun" in refused(door.login("", b"c=biws,r=x,p=x"), "PeerViolation")
        assert len(door.closed) == 1

    def test_a_second_login_amid_the_first_is_none(self, gate):
        door, client = Door(gate, hello=True), pencil()
        door.login(client.mechanism, client.first())
        assert "a second login begins" in refused(door.login("ANONYMOUS"), "PeerViolation")
        assert (len(door.closed), door.session.login) == (1, None)

    @pytest.mark.parametrize("begun", [False, True], ids=["at first", "later"])
    def test_more_bytes_than_a_login_may_have_are_not_judged(self, gate, begun):
        door, client = Door(gate, hello=True), pencil()
        mechanism = "SCRAM-SHA-256"
        if begun:
            door.login(client.mechanism, client.first())
            mechanism = ""
        said = refused(door.login(mechanism, bytes(MAX_LOGIN_DATA + 1)), "PeerViolation")
        assert f"{MAX_LOGIN_DATA} are allowed" in said
        assert door.session.login is None

    def test_the_message_of_a_token_may_be_as_long_as_one_can_be(self, gate):
        door = Door(gate, hello=True)
        assert isinstance(door.login("OAUTHBEARER", bytes(MAX_LOGIN_DATA)), Challenge | None)
        assert door.session.state is SessionState.LOGGING_IN

    def test_what_comes_after_a_refusal_is_ignored(self, gate):
        door = Door(gate, hello=True)
        door.login("ANONYMOUS")
        gate.wait(LONGEST_DELAY)
        assert len(door.closed) == 1
        number = len(door.answers)
        for command in ((messages.Ping,), (messages.Login, "ANONYMOUS"), (messages.Login, "")):
            door.tell(*command)
        gate.wait(LONGEST_DELAY)
        assert (len(door.answers), len(door.closed)) == (number, 1)

    def test_nobody_is_told_of_a_session_before_what_it_goes_by_is_forced(self):
        room = Room()
        room.engine = recover(MemoryFilesystem(), room.clock, room.journal, folds=client_folds())
        room.broker = room.made_broker()
        door = Door(room)
        door.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
        login = door.tell(messages.Login, "ANONYMOUS")
        assert door.answer(login) is None
        room.engine.sync()
        assert isinstance(door.answer(login), Welcome)


class TestWaiting:
    """While an attempt waits, nothing more is read of its connection."""

    def test_a_password_that_is_being_checked_holds_its_connection_and_no_other(self, gate):
        door, client = Door(gate, hello=True), Plain("PLAIN", Credentials(user="alice", password="pencil"))
        assert door.login("PLAIN", client.first()) is None
        assert door.held == [True]
        assert isinstance(inside(gate), Door)
        gate.worker.step()
        assert isinstance(door.answers[-1], Welcome)
        assert door.held == [True, False]

    def test_a_failure_is_held_back_each_longer_than_the_one_before(self, gate):
        waited = FIRST_DELAY
        while waited <= LONGEST_DELAY:
            door = Door(gate, hello=True)
            assert door.go_through(pencil("eraser")) is None
            gate.wait(waited * 0.8)
            assert door.closed == []
            gate.wait(waited * 0.2 + 0.001)
            refused(door.answers[-1], "AuthenticationFailed")
            assert len(door.closed) == 1
            assert door.held == [True, False]
            waited *= 2
        assert gate.broker.entrance.failed == 5

    def test_who_comes_from_elsewhere_or_as_another_does_not_wait_for_it(self, gate):
        Door(gate, hello=True).go_through(pencil("eraser"))
        assert isinstance(inside(gate, replace(TLS, address="198.51.100.1")), Door)
        other = Door(gate, certificate("root"), hello=True)
        assert isinstance(other.login("EXTERNAL"), Welcome)

    def test_good_news_are_held_back_as_long_as_the_bad_ones_before_them(self, gate):
        wrong, right = Door(gate, hello=True), Door(gate, hello=True)
        wrong.go_through(pencil("eraser"))
        gate.wait(FIRST_DELAY / 2)
        client = pencil()
        assert right.go_through(client) is None
        assert (right.session.number, right.held) == (0, [True])
        gate.wait(FIRST_DELAY / 2 + 0.001)
        welcome = right.answers[-1]
        assert (welcome.principal, right.held) == ("alice", [True, False])
        client.finish(welcome.data)

    def test_a_lost_connection_ends_an_attempt_that_waits_for_a_thread(self, gate):
        door, client = Door(gate, hello=True), Plain("PLAIN", Credentials(user="alice", password="pencil"))
        door.login("PLAIN", client.first())
        before = dict(gate.broker.sessions)
        door.leave()
        assert door.session.login is None
        gate.worker.step()
        gate.engine.sync()
        assert (door.session.state, gate.broker.sessions) == (SessionState.CLOSED, before)
        assert [type(each) for each in door.answers] == [Offered]

    @pytest.mark.parametrize("password", ["eraser", "pencil"])
    def test_a_lost_connection_ends_an_attempt_whose_end_is_held_back(self, gate, password):
        Door(gate, hello=True).go_through(pencil("eraser"))
        door = Door(gate, hello=True)
        door.go_through(pencil(password))
        before, failed = dict(gate.broker.sessions), gate.broker.entrance.failed
        door.leave()
        gate.wait(LONGEST_DELAY)
        assert gate.broker.sessions == before
        assert gate.broker.entrance.failed == failed + 1, "the first one's"
        assert (door.session.state, door.closed) == (SessionState.CLOSED, [])

    def test_a_lost_connection_ends_an_attempt_amid_its_steps(self, gate):
        door, client = Door(gate, hello=True), pencil()
        door.login(client.mechanism, client.first())
        door.leave()
        assert door.session.login is None
        assert door.login("", b"c=biws,r=x,p=x") is None


class TestTheEndOfALogin:
    @pytest.fixture
    def door(self, gate):
        """A connection whose token has ten minutes."""
        door = Door(gate, hello=True)
        self.welcome = door.login("OAUTHBEARER", bearer(exp=gate.wall() + 600))
        assert isinstance(self.welcome, Welcome), self.welcome
        return door

    @staticmethod
    def look(gate):
        gate.broker.entrance.look(gate.engine.now())
        gate.engine.sync()

    def test_it_is_told_and_ends_the_session_then_and_not_before(self, gate, door):
        assert self.welcome.valid_for == pytest.approx(660 * SECOND, abs=SECOND), "with a minute for clocks"
        gate.wait(self.welcome.valid_for / SECOND - 1)
        self.look(gate)
        assert door.closed == []
        gate.wait(2)
        self.look(gate)
        assert "its login has ended" in door.closed[0]
        assert door.session.number not in gate.broker.sessions

    def test_what_the_session_had_active_ends_with_it(self, gate, door):
        gate.admin.ask(messages.CreateTopic, "orders", 1, messages.TopicSettings())
        door.tell(messages.Add, 1, 1, data=frames(b"a"))
        gate.engine.sync()
        gate.wait(700)
        self.look(gate)
        assert gate.engine.transactions.live == {}

    def test_a_login_anew_puts_it_off_and_requests_are_taken_meanwhile(self, gate, door):
        gate.wait(500)
        number, secret = door.session.number, door.session.secret
        again = door.login(
            "OAUTHBEARER", bearer(exp=gate.wall() + 900), FormerSession(1, bytes(16), Secret(b""))
        )
        assert (again.session, again.principal, again.secret) == (number, "alice", secret)
        assert again.valid_for == pytest.approx(960 * SECOND, abs=SECOND)
        gate.wait(300)
        self.look(gate)
        assert isinstance(door.ask(messages.Ping), messages.Done)
        gate.wait(700)
        self.look(gate)
        assert len(door.closed) == 1

    def test_a_login_anew_by_a_password_is_without_end(self, gate, door):
        client = pencil()
        challenge = door.login(client.mechanism, client.first())
        assert isinstance(door.ask(messages.Ping), messages.Done), "amid its steps requests are taken"
        welcome = door.login("", client.answer(challenge.data))
        client.finish(welcome.data)
        assert welcome.valid_for == 0
        gate.wait(10_000)
        self.look(gate)
        assert door.closed == []

    def test_a_login_anew_as_another_ends_the_session(self, gate):
        door = Door(gate, replace(TLS, peer_names=("CN=root",)), hello=True)
        door.login("OAUTHBEARER", bearer(exp=gate.wall() + 600))
        said = refused(door.login("EXTERNAL"), "PeerViolation")
        assert "a session of alice logs in as root1" in said
        assert (door.closed, door.session.number in gate.broker.sessions) == ([said], False)

    def test_a_login_anew_that_fails_ends_the_session(self, gate, door):
        door.go_through(pencil("eraser"))
        assert door.session.is_open, "until it is told"
        gate.wait(FIRST_DELAY)
        refused(door.answers[-1], "AuthenticationFailed")
        assert (len(door.closed), door.session.number in gate.broker.sessions) == (1, False)
        gate.wait(1000)
        self.look(gate)
        assert len(door.closed) == 1, "it is forgotten"

    def test_one_that_ends_while_it_is_told_has_a_moment(self, gate):
        door = Door(gate, hello=True)
        welcome = door.login("OAUTHBEARER", bearer(exp=gate.wall() - 59))
        assert isinstance(welcome, Welcome), welcome
        assert 1 <= welcome.valid_for <= SECOND
        gate.wait(2)
        self.look(gate)
        assert len(door.closed) == 1

    def test_a_session_that_ends_by_itself_is_looked_at_no_more(self, gate, door):
        door.leave()
        gate.wait(1000)
        self.look(gate)
        assert door.closed == []


class TestFormerSessions:
    def test_the_same_principals_is_ended_once_the_login_has_succeeded_and_not_before(self, gate):
        gate.admin.ask(messages.CreateTopic, "orders", 1, messages.TopicSettings())
        old = inside(gate)
        old.tell(messages.Add, 1, 1, data=frames(b"a"))
        gate.engine.sync()
        new, client = Door(gate, hello=True), pencil()
        challenge = new.login(client.mechanism, client.first(), old.former)
        assert old.closed == []
        welcome = new.login("", client.answer(challenge.data))
        assert (welcome.secret, len(old.closed)) == (old.former.secret, 1)
        assert new.ask(messages.AskOutcome, old.former.session, 1).state is State.ROLLED_BACK

    def test_a_login_that_fails_ends_nobody(self, gate):
        old = inside(gate)
        new = Door(gate, hello=True)
        new.go_through(pencil("eraser"), old.former)
        gate.wait(LONGEST_DELAY)
        refused(new.answers[-1], "AuthenticationFailed")
        assert old.closed == []

    def test_another_principals_is_not_ended_and_not_had(self, gate):
        old = inside(gate)
        new = Door(gate, certificate("root"), hello=True)
        said = refused(new.login("EXTERNAL", b"", old.former), "AuthenticationFailed")
        assert f"{old.former.session}, is not that of root1" in said
        assert (old.closed, new.closed) == ([], [said])
        assert isinstance(old.ask(messages.Ping), messages.Done)

    def test_one_that_ended_is_no_others_either_for_its_secret_has_another_owner(self, gate):
        old = inside(gate)
        old.leave()
        new = Door(gate, certificate("root"), hello=True)
        welcome = new.login("EXTERNAL", b"", old.former)
        assert welcome.secret == old.former.secret
        assert new.session.producer_owner != old.session.producer_owner

    def test_what_these_data_never_gave_out_is_refused_after_the_login_alone(self, gate):
        stranger = FormerSession(1 << 32 | 1, bytes(16), Secret(bytes(16)))
        new = Door(gate, certificate("root"), hello=True)
        refused(new.login("EXTERNAL", b"", stranger), "BrokerReplaced")
        wrong = Door(gate, hello=True)
        wrong.go_through(pencil("eraser"), stranger)
        gate.wait(LONGEST_DELAY)
        refused(wrong.answers[-1], "AuthenticationFailed")


class TestLimits:
    def test_sessions_are_counted_at_the_login(self):
        room = Room(max_sessions=1)
        waiting = [Door(room, hello=True) for _ in range(3)]
        first, second, third = waiting
        assert isinstance(first.login("ANONYMOUS"), Welcome)
        said = refused(second.login("ANONYMOUS"), "LimitExceeded")
        assert (said, second.closed) == ("there are 1 sessions (max_sessions); try again later", [said])
        first.leave()
        assert isinstance(third.login("ANONYMOUS"), Welcome)

    def test_who_comes_again_takes_the_place_that_it_had(self):
        room = Room(max_sessions=1)
        first = room.peer()
        assert first.again().session.is_open
        assert len(first.closed) == 1

    def test_who_shows_a_session_that_has_ended_has_no_place(self):
        room = Room(max_sessions=1)
        first = room.peer()
        first.leave()
        room.peer()
        door = Door(room, hello=True)
        refused(door.login("ANONYMOUS", b"", first.former), "LimitExceeded")

    def test_the_administrator_comes_in_all_the_same(self):
        gate = Gate(max_sessions=1)
        assert len(gate.broker.sessions) == 1
        refused(Door(gate, certificate("root"), hello=True).login("EXTERNAL"), "LimitExceeded")
        assert Door(gate, BY_SOCKET).log_in_as_administrator().principal == ADMINISTRATOR


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
