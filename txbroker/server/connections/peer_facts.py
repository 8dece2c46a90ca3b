"""What the server finds out of a connection before anybody logs in on it."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec
from twisted.internet.address import UNIXAddress
from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from txbroker.login.facts import ConnectionFacts
from txbroker.loopback import is_loopback
from txbroker.server.connections.tls_facts import tls_facts


@implementer(IAddress)
class ProxiedAddress(NamedTuple):
    """The address of a client that a proxy has named. It is never one of this machine, whatever it says.

    Between client and proxy there may be any network (:mod:`txbroker.server.endpoints.proxied_connections`).
    """

    host: str
    port: int


def exposed_facts_of(transport: Any) -> ConnectionFacts:
    """Return the facts of a connection by an endpoint that others can reach than who is meant."""
    return msgspec.structs.replace(facts_of(transport), is_exposed=True)


def facts_of(transport: Any, administrator: bool = False) -> ConnectionFacts:
    """Return the facts of a connection that has sent something, so that a handshake is over.

    ``administrator``: it came over the administrator's socket, from somebody who may use that.
    """
    peer = transport.getPeer()
    if isinstance(peer, UNIXAddress):
        return ConnectionFacts(address="unix", secure=True, administrator=administrator)
    address = str(getattr(peer, "host", ""))
    found = tls_facts(transport)
    if found is None:
        return ConnectionFacts(address=address, secure=is_local(peer))
    name = found.server_signature_hash
    return ConnectionFacts(
        address=address,
        secure=True,
        certificate_hash=hashlib.new(name, found.server_certificate).digest() if name else None,
        peer_names=tuple(filter(None, (found.peer_subject, *found.peer_names))),
    )


def is_local(peer: Any) -> bool:
    """Return whether a peer is on this machine, so that nobody listens in between."""
    if isinstance(peer, ProxiedAddress):
        return False
    return isinstance(peer, UNIXAddress) or is_loopback(str(getattr(peer, "host", "")))
