"""The choice of a mechanism: of those that the broker offers, the strongest that the credentials allow."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from txbroker.client.login.credentials import Credentials


class ChannelBinding(Enum):
    """Whether a login with a password is bound to the broker's certificate, so that nobody can sit in between."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"


class ClientExchange(Protocol):
    """The client's side of one login. Every call may block (files, callables, PBKDF2): keep them off a loop.

    The broker's success must be passed to ``finish``, whatever the mechanism: that is where the broker is proven.
    """

    mechanism: str

    def first(self) -> bytes:
        """Return the initial response."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge.

        Raises ``BrokerNotProven`` if the broker asks for what no honest one does, ``PeerViolation`` for bytes that are
        no challenge of the mechanism.
        """

    def finish(self, final: bytes) -> None:
        """Verify what came with the broker's success; raises ``BrokerNotProven`` if it does not prove the broker."""


def choose(
    offered: Sequence[str],
    credentials: Credentials | None,
    *,
    secure: bool,
    certificate_hash: bytes | None = None,
    channel_binding: ChannelBinding = ChannelBinding.PREFER,
) -> ClientExchange:
    """Return the client's side of the strongest mechanism that the broker offers and the credentials allow.

    ``secure`` says that the connection has TLS or does not leave the machine; ``certificate_hash`` is the hash of the
    certificate that the broker showed on it (``tls-server-end-point``, RFC 5929), None without TLS. Without
    credentials it is ANONYMOUS.

    Raises ``AuthenticationFailed`` if the broker offers nothing that the credentials allow; nothing was sent then.
    """
    raise NotImplementedError
