"""A broker that demands a login, and connections to it on which nobody has said hello."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from journal.records.access_entries import (
    Effect,
    Resource,
    Right,
    Rule,
    TokenSubject,
    User,
)
from tests.login.login_room import ALICE, TLS
from tests.login.token_issuers import AUDIENCE, ISSUER, pem, token
from tests.support.broker_room import Peer, Room
from tests.support.manual_worker import ManualWorker
from txbroker.broker.broker import Broker
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import ClientExchange, Scram
from txbroker.login.facts import ConnectionFacts
from txbroker.login.tokens import issuer_of
from txbroker.wire import messages
from txbroker.wire.messages import Challenge, FormerSession, Offered, Welcome

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
