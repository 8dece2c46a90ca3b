"""The choice of a mechanism: of those that the broker offers, the strongest that the credentials allow."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import (
    ANONYMOUS,
    EXTERNAL,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    SCRAM_PLUS,
    Anonymous,
    Bearer,
    ClientExchange,
    External,
    Plain,
    Scram,
)
from txbroker.errors import AuthenticationFailed, Misuse


class ChannelBinding(Enum):
    """Whether a login with a password is bound to the broker's certificate, so that nobody can sit in between."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"


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

    Raises ``AuthenticationFailed`` if the broker offers nothing that the credentials allow, ``Misuse`` if they may not
    be used on such a connection. Nothing was sent then.
    """
    if credentials is None:
        _need(
            ANONYMOUS, offered, "this client has no credentials", "Give it a user and a password, or others"
        )
        return Anonymous(ANONYMOUS, None)
    if credentials.has_password:
        return _by_password(offered, credentials, secure, certificate_hash, channel_binding)
    if credentials.has_token:
        if not secure:
            raise Misuse(
                "a token is sent only where nobody can listen, and this connection has no TLS and leaves the machine; "
                "nothing was sent. Use TLS"
            )
        _need(
            OAUTHBEARER,
            offered,
            "this client has a token",
            "Name the token's issuer in the broker's settings",
        )
        return Bearer(OAUTHBEARER, credentials)
    if not credentials.user and EXTERNAL not in offered and ANONYMOUS in offered:
        return Anonymous(ANONYMOUS, None)  # the certificate was for TLS alone
    _need(
        EXTERNAL, offered, "this client has nothing but its certificate",
        "Show it one, and name its authority in the broker's settings",
    )  # fmt: skip
    return External(EXTERNAL, credentials)


def _by_password(
    offered: Sequence[str],
    credentials: Credentials,
    secure: bool,
    certificate_hash: bytes | None,
    channel_binding: ChannelBinding,
) -> ClientExchange:
    bound = None if channel_binding is ChannelBinding.DISABLE else certificate_hash
    if bound is not None and SCRAM_PLUS in offered:
        return Scram(SCRAM_PLUS, credentials, bound)
    if channel_binding is ChannelBinding.REQUIRE:
        lacks = (
            "there is no certificate to bind to" if bound is None else f"the broker offers {_shown(offered)}"
        )
        raise AuthenticationFailed(
            f"channel_binding is 'require', and {lacks}: {SCRAM_PLUS} was not possible. Nothing was sent. If the "
            "broker used to offer it somebody may sit in between; else use TLS, or channel_binding 'prefer'"
        )
    if SCRAM in offered:
        return Scram(SCRAM, credentials, bound)
    if PLAIN in offered and not secure:
        raise AuthenticationFailed(
            "the broker wants the password itself (PLAIN), which is sent only where nobody can listen, and this "
            "connection has no TLS and leaves the machine. Nothing was sent. Use TLS"
        )
    _need(PLAIN, offered, "this client has a password", "Give it what the broker accepts")
    return Plain(PLAIN, credentials)


def _need(mechanism: str, offered: Sequence[str], has: str, advice: str) -> None:
    if mechanism not in offered:
        raise AuthenticationFailed(
            f"the broker accepts logins by {_shown(offered)}, and {has}. Nothing was sent. {advice}"
        )


def _shown(offered: Sequence[str]) -> str:
    """What a broker offers, for a person: it may be any text of any length."""
    return ", ".join(ascii(name[:30])[1:-1] for name in offered[:8]) or "nothing"
