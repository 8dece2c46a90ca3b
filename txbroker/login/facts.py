"""The facts of a connection that a login goes by: they are found out by the server, never told by the client."""

from __future__ import annotations

import msgspec


class ConnectionFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the server knows of a connection before anybody logs in on it.

    ``address`` is the peer's, without a port; failures are counted by it. ``secure`` says that nobody can listen: the
    connection has TLS, or does not leave the machine (loopback, UNIX socket). ``certificate_hash`` is the hash of the
    certificate that the server showed on this connection, as ``tls-server-end-point`` of RFC 5929 has it; None without
    TLS. ``peer_names`` are the names in the certificate that the client showed *and that was verified*: its subject
    (RFC 4514) and its alternative names, as ``DNS:client.example``. ``administrator`` says that the peer came through
    the administrator's socket and that its credentials were verified by the operating system. ``is_exposed`` says that
    it came by an endpoint that others can reach than who is meant: there nobody is let in without a login, also while
    the login is being switched off. ``login_required`` is False where whoever does not log in is let in as well.
    """

    address: str
    secure: bool = False
    certificate_hash: bytes | None = None
    peer_names: tuple[str, ...] = ()
    administrator: bool = False
    is_exposed: bool = False
    login_required: bool = True
