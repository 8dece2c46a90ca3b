"""Answers that need nothing of the broker: to a ping, and to requests of a newer version of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from txbroker.broker.sessions.session import Session
from txbroker.wire.codec import encode
from txbroker.wire.messages import Done, Ping
from txbroker.wire.newer_request import NewerRequest, refuse_newer


def pong(session: Session, command: Ping, data: memoryview) -> None:  # noqa: ARG001
    """Say that the broker answers."""
    session.deliver(encode(Done(command.correlation)))


def refuse(session: Session, command: NewerRequest, data: memoryview) -> NoReturn:  # noqa: ARG001
    """Raise :class:`VersionRefused`: what was asked for is not known here."""
    raise refuse_newer(command)


PLAIN_ANSWERS: Final[dict[type, Callable[[Session, Any, memoryview], None]]] = {
    Ping: pong,
    NewerRequest: refuse,
}
"""The requests, each with its meaning."""
