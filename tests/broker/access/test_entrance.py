"""Test the entrance: from a hello over a login, at once or step by step, to a session, and to the end of the login."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from twisted.logger import capturedLogs, formatEvent

from journal.folds.table import client_folds
from journal.parties import ADMINISTRATOR, Owner
from journal.recovery.start import recover
from journal.testing import MemoryFilesystem
from journal.transaction_states import State
from tests.broker.access.gate import (
    BY_SOCKET,
    SECOND,
    Door,
    Gate,
    bearer,
    certificate,
    inside,
    pencil,
)
from tests.login.login_room import OPEN, TLS
from tests.support.broker_room import Room, frames, refused
from txbroker.broker.sessions.session import SessionState
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import Plain
from txbroker.login.throttle import FIRST_DELAY, LONGEST_DELAY
from txbroker.server.connections.connections import Connections
from txbroker.server.connections.line_limit import BURST, SPAN
from txbroker.server.connections.read_limits import Intake
from txbroker.server.connections.send_buffer import SendBuffers
from txbroker.server.settings.config import ServiceSettings
from txbroker.wire import messages
from txbroker.wire.messages import MAX_LOGIN_DATA, Challenge, FormerSession, Offered, Welcome
from txbroker.wire.secret import Secret


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


def test_lines_about_refused_logins_are_few_and_those_left_out_are_counted(gate):
    """Strangers could fill the disk with them."""
    intake, send_buffers = Intake(gate.broker.accounts, 1 << 20), SendBuffers(gate.timers)
    connections = Connections(gate.broker, intake, send_buffers, ServiceSettings(data="d"), gate.timers)
    with capturedLogs() as lines:
        for _ in range(BURST + 40):
            Door(gate, hello=True).go_through(pencil("wrong"))
        gate.wait(SPAN)
        connections.sweep()
    told = [formatEvent(each) for each in lines]
    assert sum("refused a login of 'tester'" in each for each in told) == BURST
    assert [each for each in told if "left out" in each] == [
        "left out 40 lines about connections that had not logged in: there were too many"
    ]
