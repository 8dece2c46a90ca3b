"""Test a client's logins without I/O: its core on one side, a broker's real judge of logins on the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from journal.records.access_entries import User
from tests.login.login_room import OPEN, PENCIL, TLS, LoginRoom
from tests.login.token_issuers import AUDIENCE, ISSUER, NOW, pem, token
from tests.support.certificates import Signed
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.login import RENEW_AFTER, Channel
from txbroker.client.core.options import Lost, Options
from txbroker.client.core.phase import Phase
from txbroker.client.login.choice import ChannelBinding
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.end_point import end_point_hash
from txbroker.client.loop.login import Login as ClientLogin
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Challenge, Failure, Success
from txbroker.login.tokens import issuer_of
from txbroker.wire import messages
from txbroker.wire.codec import encode, request_decoder
from txbroker.wire.messages import FormerSession, Hello, Login, Offered, Ping, Refused, Welcome
from txbroker.wire.refusals import refusal
from txbroker.wire.secret import Secret

SECOND = 1_000_000
FREE = replace(OPEN, login_required=False)
PENCILS = {"user": "alice", "password": "pencil"}


class Gate:
    """The other side: it judges logins as a broker does, at once, and answers pings. ``said`` are all requests."""

    def __init__(self, facts: ConnectionFacts = TLS) -> None:
        self.room = LoginRoom()
        self.room.logins.trust([issuer_of(ISSUER, AUDIENCE, pem("RSA"), "keys")])
        self.room.clock.set_wall(NOW * SECOND)
        self.facts = facts
        self.said: list[Any] = []
        self.session = 70
        self.connect()

    def connect(self) -> None:
        self._decoder = request_decoder(1 << 20)
        self._exchange: Any = None

    def answers(self, data: bytes) -> bytes:
        requests = [head for head, _ in self._decoder.feed(data)]
        self.said += requests
        return b"".join(encode(answer) for each in requests if (answer := self.answer(each)) is not None)

    def answer(self, request: Any) -> Any:
        """May be replaced by a test."""
        match request:
            case Hello():
                return Offered(request.correlation, 3, "txbroker", self.room.logins.mechanisms(self.facts))
            case Login():
                return self.judged(request)
            case Ping():
                return messages.Done(request.correlation)

    def judged(self, request: Login) -> Any:
        if request.mechanism:
            self._exchange = self.room.begin(request.mechanism, self.facts)
        match self._exchange.step(request.data):
            case Challenge() as challenge:
                return messages.Challenge(request.correlation, challenge.data)
            case Success() as proven:
                return self.welcome(request, proven)
            case Failure() as failure:
                return refusal(request.correlation, failure.error)

    def welcome(self, request: Login, proven: Success) -> Welcome:
        self.session += 1
        valid_for = 0
        if proven.valid_until is not None:
            valid_for = int(proven.valid_until * SECOND) - self.room.clock.wall()
        return Welcome(
            request.correlation, self.session, 1 << 20, 1 << 20, "a" * 32, b"n" * 16, Secret(b"s" * 16), 1000,
            proven.principal, proven.data, valid_for,
        )  # fmt: skip

    def logins(self) -> list[Login]:
        return [each for each in self.said if type(each) is Login]


class Client:
    """A core with a manual clock, and the connection to a gate. With ``apart`` its steps wait until they are run."""

    def __init__(
        self,
        gate: Gate,
        credentials: Credentials | None = None,
        channel: Channel = Channel(secure=True),  # noqa: B008  (a tuple)
        apart: bool = False,
        **options: Any,
    ) -> None:
        self.gate, self.channel, self.now = gate, channel, 1000.0
        given = Options(**options)
        log_in = (
            None if credentials is None else ClientLogin(credentials, ChannelBinding(given.channel_binding))
        )
        self.core = Core(given, lambda: self.now, lambda: 0.5, lambda: 0, log_in)
        self.work: list[tuple[Callable[[], Any], Callable[..., None]]] = []
        if apart:
            self.core.entering.apart = lambda work, done: self.work.append((work, done))
        self.connect()

    def connect(self) -> None:
        self.gate.connect()
        self.core.connecting()
        self.core.entering.channel = lambda: self.channel
        self.core.connected()
        self.pump()

    def pump(self) -> None:
        while output := self.core.take_output():
            self.core.received(self.gate.answers(b"".join(output)))

    def step(self) -> None:
        """Run the oldest step that waits, and pass on what it returns."""
        work, done = self.work.pop(0)
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  (it is told)
            done(None, error)
        else:
            done(result, None)
        self.pump()

    def lose(self, reason: str = "cable cut") -> None:
        self.core.lost(self.core.abort or reason)

    def wait(self, seconds: float) -> None:
        """Let time pass, and do what is due when it is."""
        end = self.now + seconds
        while self.now < end:
            until = min(end, max(self.core.wakeup(), self.now + 0.001))
            self.gate.room.clock.advance(round((until - self.now) * SECOND))
            self.now = until
            self.core.tick()
            self.pump()

    @property
    def phase(self) -> Phase:
        return self.core.phase


def kinds(gate: Gate) -> list[type]:
    return [type(each) for each in gate.said]


class TestWithoutCredentials:
    def test_hello_and_login_go_out_together(self):
        core = Core(Options(client="me"), lambda: 0.0, lambda: 0.5, lambda: 0)
        core.connecting()
        core.connected()
        hello, login = (head for head, _ in request_decoder(1 << 20).feed(b"".join(core.take_output())))
        assert hello == Hello(hello.correlation, messages.MAGIC, list(messages.VERSIONS), "me")
        assert login == Login(login.correlation, "ANONYMOUS")

    def test_where_nobody_has_to_log_in_that_makes_a_session(self):
        client = Client(Gate(FREE))
        assert (client.phase, client.core.session) == (Phase.OPEN, 71)
        assert client.core.entering.server == "txbroker"
        client.wait(60)
        assert client.core.wakeup() == math.inf, "there is no time to look at any more"

    def test_where_one_has_to_it_is_told_what_there_is(self):
        gate = Gate()
        gate.judged = lambda request: None  # a refusal is held back
        client = Client(gate)
        said = "lets nobody in without a login, by OAUTHBEARER, SCRAM-SHA-256-PLUS, SCRAM-SHA-256, PLAIN"
        assert client.phase is Phase.CLOSED
        with pytest.raises(errors.AuthenticationFailed, match=said):
            client.core.check_open()
        assert said in client.core.abort

    def test_a_challenge_that_nobody_asked_for_is_left_until_the_time_is_up(self):
        gate = Gate(FREE)
        gate.judged = lambda request: messages.Challenge(request.correlation, b"?")
        client = Client(gate, timeout=5.0)
        assert (client.phase, client.core.abort) == (Phase.GREETING, "")
        client.wait(5.1)
        assert "the login has not ended for 5.0 s" in client.core.abort


class TestScram:
    def test_a_password_is_proven_step_by_step_and_not_sent(self):
        gate = Gate(OPEN)
        client = Client(gate, Credentials(**PENCILS), Channel())
        assert (client.phase, client.core.session) == (Phase.OPEN, 71)
        assert kinds(gate) == [Hello, Login, Login]
        assert [each.mechanism for each in gate.logins()] == ["SCRAM-SHA-256", ""]
        assert not any(b"pencil" in each.data for each in gate.logins())

    def test_it_is_bound_to_the_certificate_that_the_broker_shows(self):
        certificate = Signed("broker").made.public_bytes(Encoding.DER)
        gate = Gate(replace(TLS, certificate_hash=end_point_hash(certificate)))
        client = Client(gate, Credentials(**PENCILS), Channel(True, certificate), channel_binding="require")
        assert client.phase is Phase.OPEN
        assert gate.logins()[0].mechanism == "SCRAM-SHA-256-PLUS"

    def test_who_shows_another_certificate_than_the_brokers_does_not_get_between(self):
        of_another = Signed("another").made.public_bytes(Encoding.DER)
        client = Client(Gate(), Credentials(**PENCILS), Channel(True, of_another))
        assert client.phase is Phase.CLOSED
        with pytest.raises(errors.AuthenticationFailed):
            client.core.check_open()

    def test_without_a_certificate_nothing_is_sent_if_it_must_be_bound(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS), channel_binding="require")
        with pytest.raises(errors.AuthenticationFailed, match="channel_binding is 'require'"):
            client.core.check_open()
        assert kinds(gate) == [Hello]

    @pytest.mark.parametrize("proof", [b"", b"v=" + b"A" * 43 + b"="], ids=["none", "another's"])
    def test_a_broker_that_does_not_prove_that_it_knows_the_password_gets_no_request(self, proof):
        gate = Gate()
        welcome = gate.welcome
        gate.welcome = lambda request, proven: replace(welcome(request, proven), data=proof)
        client = Client(gate, Credentials(**PENCILS))
        waiting = client.core.request(Ping(client.core.correlation()), messages.Done)
        client.pump()
        assert client.phase is not Phase.OPEN
        assert client.core.session == 0
        assert "did not prove" in client.core.abort
        assert Ping not in kinds(gate)
        client.lose()
        assert not waiting.done or isinstance(waiting.error, errors.BrokerNotProven)

    def test_a_broker_that_welcomes_before_it_has_seen_a_proof_is_none(self):
        gate = Gate()
        gate.judged = lambda request: gate.welcome(request, Success("alice"))
        client = Client(gate, Credentials(**PENCILS))
        assert client.phase is not Phase.OPEN
        assert "without having seen a proof" in client.core.abort


class TestRefusals:
    def test_the_first_login_that_is_refused_ends_the_client(self):
        client = Client(Gate(), Credentials(user="alice", password="eraser"))
        waiting = client.core.request(Ping(client.core.correlation()), messages.Done)
        assert client.phase is Phase.CLOSED
        assert client.core.abort
        with pytest.raises(errors.AuthenticationFailed, match="the login was refused"):
            waiting.result()

    def test_a_later_one_ends_the_connection_and_what_waits_goes_on_once_it_succeeds(self):
        gate, passwords = Gate(), ["pencil", "eraser", "pencil"]
        client = Client(gate, Credentials(user="alice", password=lambda: passwords.pop(0)))
        client.lose()
        waiting = client.core.request(Ping(client.core.correlation()), messages.Done)
        client.connect()
        assert client.phase is Phase.GREETING
        assert "the broker refused the session: the login was refused" in client.core.abort
        client.lose()
        assert client.phase is Phase.DOWN
        client.connect()
        assert (client.phase, waiting.done) == (Phase.OPEN, True)

    @pytest.mark.parametrize("error", ["LimitExceeded", "TooManyLogins"])
    def test_what_may_be_otherwise_next_time_ends_the_connection_even_at_first(self, error):
        gate = Gate(FREE)
        judged = gate.judged
        gate.judged = lambda request: Refused(request.correlation, error, "try again later")
        client = Client(gate)
        assert "try again later" in client.core.abort
        client.lose()
        assert client.phase is Phase.DOWN
        gate.judged = judged
        client.connect()
        assert client.phase is Phase.OPEN

    @pytest.mark.parametrize("error", ["VersionRefused", "InvalidName", "BrokerReplaced"])
    @pytest.mark.parametrize("is_first", [True, False], ids=["at first", "later"])
    def test_what_will_be_refused_each_time_ends_the_client_at_any_time(self, error, is_first):
        gate = Gate(FREE)
        client = None if is_first else Client(gate)
        gate.answer = lambda request: Refused(request.correlation, error, "never again")
        if client is None:
            client = Client(gate)
        else:
            client.lose()
            client.connect()
        assert client.phase is Phase.CLOSED
        with pytest.raises(getattr(errors, error), match="never again"):
            client.core.check_open()

    def test_a_change_that_was_sent_before_the_broker_was_replaced_has_an_outcome_that_is_lost(self):
        gate = Gate(FREE)
        client = Client(gate)
        change, look = (
            client.core.request(Ping(client.core.correlation()), messages.Done, rule=rule)
            for rule in (Lost.REPEAT, Lost.READ)
        )
        client.core.take_output()
        client.lose()
        later = client.core.request(Ping(client.core.correlation()), messages.Done, rule=Lost.REPEAT)
        gate.answer = lambda request: Refused(request.correlation, "BrokerReplaced", "other data")
        client.connect()
        assert [type(call.error) for call in (change, look, later)] == [
            errors.OutcomeLost,
            errors.BrokerReplaced,
            errors.BrokerReplaced,
        ]
        assert "may or may not have happened there" in str(change.error)
        assert isinstance(change.error, errors.OutcomeUnknown)
        assert not isinstance(change.error, errors.RequestRefused), "that would say that nothing was changed"
        with pytest.raises(errors.BrokerReplaced):
            client.core.check_open()

    def test_an_answer_of_another_kind_ends_the_connection(self):
        gate = Gate(FREE)
        gate.judged = lambda request: messages.Done(request.correlation)
        assert "Login was answered by Done" in Client(gate).core.abort

    def test_a_connection_that_is_lost_amid_a_login_is_made_again_without_a_word(self):
        gate = Gate()
        judged, gate.judged = gate.judged, lambda request: None
        client = Client(gate, Credentials(**PENCILS))
        client.lose()
        assert (client.phase, client.core.abort) == (Phase.DOWN, "")
        gate.judged = judged
        client.connect()
        assert client.phase is Phase.OPEN


class TestFunctions:
    """What gives the password is the program's: it may fail, wait, and be late."""

    def test_it_is_asked_at_each_login(self):
        asked = []
        client = Client(Gate(), Credentials(user="alice", password=lambda: asked.append(1) or "pencil"))
        client.lose()
        client.connect()
        assert (client.phase, len(asked)) == (Phase.OPEN, 2)

    def test_one_that_fails_at_first_ends_the_client_with_its_error(self):
        failed = RuntimeError("the vault is closed")

        def password():
            raise failed

        gate = Gate()
        client = Client(gate, Credentials(user="alice", password=password))
        assert client.phase is Phase.CLOSED
        with pytest.raises(errors.AuthenticationFailed, match="RuntimeError: the vault is closed") as told:
            client.core.check_open()
        assert told.value.__cause__ is failed
        assert kinds(gate) == [Hello]

    def test_one_that_fails_later_ends_the_connection(self):
        answers = ["pencil"]
        client = Client(Gate(), Credentials(user="alice", password=lambda: answers.pop()))
        client.lose()
        client.connect()
        assert client.phase is Phase.GREETING
        assert client.core.abort.startswith(
            "the login failed: what gives the password or token failed (IndexError"
        )

    def test_one_that_returns_no_password_is_told_so(self):
        client = Client(Gate(), Credentials(user="alice", password=lambda: 7))  # type: ignore[arg-type,return-value]
        with pytest.raises((errors.WrongType, errors.AuthenticationFailed), match="int"):
            client.core.check_open()

    def test_a_file_that_is_not_there_is_named(self, tmp_path):
        path = tmp_path / "password"
        client = Client(Gate(), Credentials(user="alice", password_file=str(path)))
        assert client.phase is Phase.CLOSED
        with pytest.raises(errors.Misuse, match=r"password.*cannot be read"):
            client.core.check_open()

    def test_nothing_goes_on_until_it_has_come_and_then_it_does(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS), apart=True)
        assert (kinds(gate), len(client.work)) == ([Hello], 1)
        for done in ("the first message", "the proof", "the broker's proof"):
            assert client.phase is Phase.GREETING, done
            client.step()
        assert (client.phase, client.work) == (Phase.OPEN, [])

    def test_what_comes_late_from_a_connection_that_is_lost_changes_nothing(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS), apart=True)
        client.lose()
        client.step()
        assert (kinds(gate), client.phase, client.core.take_output()) == ([Hello], Phase.DOWN, [])
        client.connect()
        [late] = client.work
        client.lose()
        client.connect()
        client.step()
        assert kinds(gate) == [Hello] * 3, "the one before the last was late, too"
        for _ in range(3):
            client.step()
        assert client.phase is Phase.OPEN
        late[1](None, RuntimeError("late"))
        late[1]("late", None)
        assert (client.phase, client.core.abort) == (Phase.OPEN, "")

    def test_an_error_that_comes_late_ends_no_client(self):
        client = Client(Gate(), Credentials(user="alice", password=lambda: 1 // 0), apart=True)
        client.lose()
        client.step()
        assert (client.phase, client.core.fatal) == (Phase.DOWN, None)

    def test_what_comes_after_the_client_has_been_closed_changes_nothing(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS), apart=True)
        client.core.stop(errors.ConnectionClosed("closed"))
        client.step()
        assert (kinds(gate), client.phase, client.core.take_output()) == ([Hello], Phase.CLOSED, [])


class TestTime:
    def test_a_broker_that_does_not_answer_the_hello_is_given_up(self):
        gate = Gate()
        gate.answer = lambda request: None
        client = Client(gate, Credentials(**PENCILS), timeout=5.0)
        client.wait(4.9)
        assert client.core.abort == ""
        client.wait(0.2)
        assert client.core.abort

    def test_one_that_does_not_answer_a_login_is_given_up(self):
        gate = Gate()
        gate.judged = lambda request: None
        client = Client(gate, Credentials(**PENCILS), timeout=5.0)
        client.wait(5.1)
        assert client.core.abort
        client.lose()
        assert client.phase is Phase.DOWN

    def test_so_is_a_function_that_does_not_return(self):
        client = Client(Gate(), Credentials(**PENCILS), apart=True, timeout=5.0)
        client.wait(4.9)
        assert client.core.abort == ""
        client.wait(0.2)
        assert "the login has not ended for 5.0 s" in client.core.abort

    def test_the_time_of_all_steps_together_counts(self):
        client = Client(Gate(), Credentials(**PENCILS), apart=True, timeout=5.0)
        client.wait(3)
        client.step()
        client.wait(3)
        assert client.core.abort

    def test_a_session_that_came_in_time_is_left_alone(self):
        client = Client(Gate(), Credentials(**PENCILS), timeout=5.0)
        client.wait(60)
        assert (client.phase, client.core.abort) == (Phase.OPEN, "")


class TestRenewal:
    @pytest.fixture
    def scene(self):
        """A client with a session by a token of 600 s, which the broker takes for a minute more."""
        gate, ends = Gate(), [600, 6000]
        given = Credentials(token=lambda: token(exp=NOW + ends.pop(0)))
        client = Client(gate, given)
        assert client.phase is Phase.OPEN
        return SimpleNamespace(gate=gate, client=client, ends=ends, at=RENEW_AFTER * 660)

    def test_the_client_logs_in_anew_before_its_token_ends_and_keeps_its_session(self, scene):
        gate, client = scene.gate, scene.client
        session = client.core.session
        gate.said.clear()
        client.wait(scene.at - 1)
        assert gate.said == []
        client.wait(2)
        assert kinds(gate) == [Login]
        assert (gate.said[0].mechanism, gate.said[0].after) == ("OAUTHBEARER", None)
        assert (client.phase, client.core.session, client.core.abort) == (Phase.OPEN, session, "")
        client.wait(600)
        assert kinds(gate) == [Login], "the second has more time"
        assert scene.ends == []

    def test_requests_go_on_meanwhile(self, scene):
        client = scene.client
        client.core.entering.apart = lambda work, done: client.work.append((work, done))
        client.wait(scene.at + 1)
        assert len(client.work) == 1
        asked = client.core.request(Ping(client.core.correlation()), messages.Done)
        client.pump()
        assert asked.done
        while client.work:
            client.step()
        assert client.phase is Phase.OPEN

    def test_a_function_that_fails_is_asked_again_and_the_session_goes_on(self, scene, caplog):
        gate, client = scene.gate, scene.client
        session, asked = client.core.session, []

        def provide():
            asked.append(client.now)
            if len(asked) < 4:
                raise OSError("identity provider: 503")
            return token(exp=NOW + 6000)

        client.core.entering.credentials = ClientLogin(Credentials(token=provide), ChannelBinding.PREFER)
        gate.said.clear()
        client.wait(scene.at + 14)
        assert len(asked) == 3
        assert (gate.said, client.phase, client.core.abort) == ([], Phase.OPEN, "")
        assert (
            "could not log in anew: what gives the password or token failed (OSError: identity" in caplog.text
        )
        client.wait(2)
        assert (len(asked), kinds(gate)) == (4, [Login])
        client.wait(600)
        assert (client.phase, client.core.session, client.core.abort) == (Phase.OPEN, session, "")
        assert len(asked) == 4

    def test_one_that_goes_on_failing_is_asked_more_often_towards_the_end_and_then_no_more(
        self, scene, caplog
    ):
        client, asked = scene.client, []
        client.core.entering.credentials = ClientLogin(
            Credentials(token=lambda: asked.append(client.now) or 1 // 0), ChannelBinding.PREFER
        )
        client.wait(700)
        pauses = [after - before for before, after in pairwise(asked)]
        assert 26 < len(asked) < 50
        assert (max(pauses), min(pauses)) == (pytest.approx(5, abs=0.1), pytest.approx(0.2, abs=0.1))
        assert 1660 <= asked[-1] < 1661
        assert (client.core.wakeup(), client.core.abort) == (math.inf, ""), "the broker ends the session"

    def test_a_function_that_hangs_is_asked_again_and_what_it_returns_late_is_not_used(self, scene, caplog):
        gate, client = scene.gate, scene.client
        client.core.entering.apart = lambda work, done: client.work.append((work, done))
        gate.said.clear()
        client.wait(scene.at + client.core.options.timeout + 6)
        assert "hangs" in caplog.text
        late, _ = client.work
        late[1](None, RuntimeError("late"))
        late[1]("late", None)
        client.work.pop(0)
        while client.work:
            client.step()
        assert (client.phase, client.core.abort, kinds(gate)) == (Phase.OPEN, "", [Login])

    def test_one_that_is_refused_ends_the_connection_not_the_client(self, scene):
        gate, client = scene.gate, scene.client
        gate.room.set(User("alice", PENCIL))
        client.wait(scene.at + 1)
        assert "the broker refused the session" in client.core.abort
        client.lose()
        assert client.phase is Phase.DOWN

    def test_one_that_the_broker_does_not_answer_in_time_ends_the_connection(self, scene):
        client = scene.client
        scene.gate.judged = lambda request: None
        client.wait(scene.at + 29)
        assert client.core.abort == ""
        client.wait(3)
        assert "30.0 s" in client.core.abort

    def test_a_connection_that_is_lost_has_no_renewal_left(self, scene):
        gate, client = scene.gate, scene.client
        client.lose()
        gate.said.clear()
        client.now += scene.at + 1
        client.core.tick()
        assert (gate.said, client.core.take_output()) == ([], [])
        assert client.core.abort == ""

    def test_a_login_without_an_end_is_not_renewed(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS))
        gate.said.clear()
        client.wait(100_000)
        assert gate.said == []


class TestFormerSessions:
    def test_the_first_step_of_a_login_shows_it_and_no_other(self):
        gate = Gate()
        client = Client(gate, Credentials(**PENCILS))
        client.lose()
        client.connect()
        former = FormerSession(71, b"n" * 16, Secret(b"s" * 16))
        assert [each.after for each in gate.logins()] == [None, None, former, None]
        assert client.core.session == 72
