"""What the parts of a channel know of it, and of its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from txbroker.amqp.connection_methods import Method
from txbroker.amqp.reply_codes import AmqpError
from txbroker.channels.blocking import Blocking
from txbroker.channels.directory import Directory
from txbroker.channels.pending import Transaction, Uncommitted
from txbroker.channels.replies import Replies
from txbroker.channels.requests import Refusal, Requests, Then
from txbroker.wire.messages import Request


class ConnectionFace(Protocol):
    """A connection. ``user`` is who its client says to be; ``wants_cancels`` that it wants to know of consumers that
    the broker ends; ``uncommitted`` counts what its channels' transactions hold.
    """

    user: str
    frame_max: int
    wants_cancels: bool
    uncommitted: Uncommitted

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is asked for its client."""

    @property
    def blocking(self) -> Blocking:
        """What a full disk is to it."""

    @property
    def send(self) -> Callable[[bytes], None]:
        """What takes bytes for its client."""

    def now(self) -> int:
        """Return the time of the wall clock, in µs since 1970."""

    def has_time_for(self, count: int) -> bool:
        """Return whether so many deliveries more may be made in this turn of the reactor; count them if so."""

    def in_turn(self, call: Callable[[], object]) -> None:
        """Call in one of the session's next turns, if the connection is there then."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call later, if the connection is there then."""

    def ask_in_order(
        self,
        kind: Callable[..., Request],
        *fields: Any,
        then: Then,
        refused: Refusal,
        is_awaited: bool = False,
        **named: Any,
    ) -> None:
        """Send a request, and have nothing carried out before it is judged, or before its answer if ``is_awaited``."""

    def next_consumer(self) -> int:
        """Return a number for a consumer."""

    def next_serial(self) -> int:
        """Return a number for a transaction."""


class ChannelFace(Protocol):
    """A channel, as :class:`txbroker.channels.channel.Channel` has it."""

    number: int
    is_closed: bool
    last_queue: str
    transaction: Transaction | None

    @property
    def connection(self) -> ConnectionFace:
        """Its connection."""

    @property
    def requests(self) -> Requests:
        """What asks the broker."""

    @property
    def directory(self) -> Directory:
        """What names mean."""

    def is_dirty(self) -> None:
        """Have it flushed at the end of the turn."""

    def named(self, queue: str) -> str:
        """Return the name of a queue that was given, or that of the one declared last."""

    @property
    def replies(self) -> Replies:
        """Its answers, in the order of the methods."""

    def reply(self, method: Method) -> None:
        """Answer with a method, behind the answers to those before."""

    def tell(self, method: Method) -> None:
        """Send a method that answers none, unless the channel is closed."""

    def ask(
        self, kind: Callable[..., Request], *fields: Any, then: Then, is_awaited: bool = False, **named: Any
    ) -> None:
        """Send a request for the method that is being carried out."""

    def fail(self, error: AmqpError, method: Method | None = None) -> None:
        """Close the channel for an error."""
