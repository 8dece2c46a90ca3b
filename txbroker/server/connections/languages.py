"""The languages that clients speak: each takes a connection's bytes to requests of the broker, and answers to bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from txbroker.broker.sessions.session import Session
from txbroker.channels.connection import AmqpConnection
from txbroker.channels.directory import Directory
from txbroker.wire.codec import request_decoder

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker

Commands = Sequence[tuple[Any, memoryview]]


class CommandDecoder(Protocol):
    """Takes a peer's bytes as they come, and returns what they ask for. Memory is bounded, whatever the peer sends."""

    @property
    def uncut(self) -> int:
        """The number of bytes that were not decoded: there may be whole commands in them."""

    @property
    def taken(self) -> int:
        """The bytes of the commands that were returned last."""

    @property
    def held(self) -> int:
        """How many bytes are kept of what is not whole."""

    @property
    def missing(self) -> int:
        """How many bytes that needs."""

    def feed(self, data: bytes, work: float = inf, each: int = 0) -> Commands:
        """Take bytes, and return as :meth:`take`."""

    def add(self, data: bytes) -> None:
        """Take bytes, and keep them for :meth:`take`."""

    def take(self, work: float = inf, each: int = 0) -> Commands:
        """Return the next commands with their data, until they reach ``work``, in bytes and ``each`` for each."""


class Language(Protocol):
    """What one connection's client speaks."""

    @property
    def decoder(self) -> CommandDecoder:
        """What takes the client's bytes."""

    @property
    def received(self) -> Callable[[Session, Any, memoryview], None]:
        """What takes a command."""

    @property
    def answered(self) -> Callable[[bytes], None]:
        """What takes an answer of the broker."""

    def begin(self, session: Session) -> None:
        """Say whose session it is."""

    def turn_over(self) -> None:
        """Note that there are no more commands in this turn."""

    def check(self, now: float, is_read: bool, patience: float) -> str:
        """Do what time asks for; return why the connection is to be dropped, "" if it is not. Called every second."""

    def lost(self) -> None:
        """The connection is gone."""


Speak = Callable[["Broker", Callable[[bytes], None], Callable[[str], None], Callable[..., object]], Language]
"""Makes a language: of a broker, of what takes bytes for the peer, of what closes the connection behind them for a
reason, and of the reactor's ``callLater``.
"""


class OwnLanguage:
    """The broker's own: commands are its requests."""

    def __init__(self, broker: Broker, send: Callable[[bytes], None], *_: object) -> None:
        self.decoder = request_decoder(broker.settings.max_request)
        self.received, self.answered = broker.received, send

    def begin(self, session: Session) -> None:
        """Nothing: requests come with their session."""

    def turn_over(self) -> None:
        """Nothing is gathered."""

    def check(self, now: float, is_read: bool, patience: float) -> str:  # noqa: ARG002
        """Return "": a client that says nothing may stay."""
        return ""

    def lost(self) -> None:
        """Nothing is kept."""


def amqp(broker: Broker, hosts: Iterable[str] = ()) -> Speak:
    """Return what makes connections of AMQP 0-9-1, which share what names mean. ``hosts`` are virtual hosts beside the
    one that is always there.
    """
    directory = Directory(broker, hosts)

    def speak(
        of: Broker,
        send: Callable[[bytes], None],
        end: Callable[[str], None],
        call_later: Callable[..., object],
    ) -> Language:
        return AmqpConnection(of, directory, send, end, call_later)

    return speak
