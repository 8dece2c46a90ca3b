"""Listening: endpoints from their descriptions, whom they let in, and what they are called when they listen.

While nobody has to log in, whoever reaches an endpoint may do everything. So an endpoint that others than the users of
this machine can reach, or all of these, must be allowed in so many words.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.endpoints import (
    AdoptedStreamServerEndpoint,
    TCP4ServerEndpoint,
    TCP6ServerEndpoint,
    UNIXServerEndpoint,
    serverFromString,
)
from twisted.internet.interfaces import IProtocolFactory

from txbroker.errors import InvalidSetting
from txbroker.loopback import is_loopback
from txbroker.server.endpoints import tls_endpoint
from txbroker.server.endpoints.certificate_files import ClientCertificates
from txbroker.server.endpoints.certificates import KnownCertificates
from txbroker.server.endpoints.tls_endpoint import TlsServerEndpoint, Wrap
from txbroker.server.settings.proxies import NO_PROXIES, Proxies

BACKLOG: Final = 1024
"""Connections that may wait to be accepted. With Twisted's 50 a client that finds the queue full loses a second."""

MAX_ACCEPTS: Final = 8
"""Connections that are accepted in a turn of the reactor. Each takes 0.3 ms, with its end; the kernel keeps others."""

INSECURE: Final = "insecure_open"

_OTHERS: Final = 0o007
"""The bits of a mode for users who are neither the owner nor of the group."""


def endpoint_of(reactor: Any, description: str, known: KnownCertificates | None = None) -> Any:
    """Return the endpoint of a description, as ``tcp:7654:interface=127.0.0.1``; raises InvalidSetting.

    The certificates of one with TLS are loaded, unless they are among the ``known`` ones.
    """
    kind = description.partition(":")[0]
    if kind == "ssl":
        raise InvalidSetting(
            f"{description}: ssl: endpoints are not taken, because their certificates could not be renewed while the "
            f"broker runs. Say {tls_endpoint.FORM}"
        )
    if kind == tls_endpoint.KIND:
        return _with_tls(reactor, description, known or KnownCertificates())
    try:
        if "\0" in description:
            raise ValueError("it has a NUL, as the name of an abstract socket, which has no mode")
        endpoint = serverFromString(reactor, _with_backlog(description))
    except Exception as error:
        raise InvalidSetting(
            f"{description}: not an endpoint: {error}. One is tcp:{_port(description)}:interface=127.0.0.1, another "
            f"unix:/run/txbroker.sock:mode=600, and with TLS {tls_endpoint.FORM}"
        ) from error
    kind, first, *fields = re.split(r"(?<!\\):", description)
    port = next((field for field in fields if field.startswith("port=")), first).removeprefix("port=")
    # it is a number, or Twisted would have refused it
    if kind in ("tcp", "tcp6") and not (port.isdigit() and int(port) < 65_536):
        raise InvalidSetting(
            f"{description}: {port} is not a port; those are 1 to 65535, and 0 for any that is free"
        )
    return endpoint


def check_form(reactor: Any, description: str) -> None:
    """Raise InvalidSetting for what is no description of an endpoint. Files that it names are not looked at."""
    if description.partition(":")[0] != tls_endpoint.KIND:
        endpoint_of(reactor, description)
        return
    try:
        tls_endpoint.described(description)
    except ValueError as error:
        raise InvalidSetting(
            f"{description}: not an endpoint: {error}. One is {tls_endpoint.FORM}"
        ) from error


def _with_tls(reactor: Any, description: str, known: KnownCertificates) -> TlsServerEndpoint:
    try:
        said = tls_endpoint.described(description)
    except ValueError as error:
        raise InvalidSetting(
            f"{description}: not an endpoint: {error}. One is {tls_endpoint.FORM}"
        ) from error
    try:
        return TlsServerEndpoint(reactor, said, known, BACKLOG)
    except InvalidSetting as error:
        raise InvalidSetting(f"{description}: {error}") from error


def listen(endpoint: Any, factory: IProtocolFactory, proxied: Wrap) -> Any:
    """Listen, so that headers of proxies are taken before anything else; not on UNIX sockets."""
    if isinstance(endpoint, TlsServerEndpoint):
        listening: Any = endpoint.listen(factory, proxied)
    else:
        listening = endpoint.listen(proxied(factory) if _is_of_a_network(endpoint) else factory)
    return listening.addCallback(accept_few)


def accept_few(port: Any) -> Any:
    """Have a port accept at most :data:`MAX_ACCEPTS` connections in a turn of the reactor; return it.

    Twisted accepts 20 more in each turn that finds as many as the last: who connects fast enough gets all the time.
    """
    accept = getattr(port, "doRead", None)
    if accept is not None and hasattr(port, "numberAccepts"):

        def few() -> None:
            port.numberAccepts = min(port.numberAccepts, MAX_ACCEPTS)
            accept()

        port.doRead = few
    return port


def _is_of_a_network(endpoint: Any) -> bool:
    if isinstance(endpoint, AdoptedStreamServerEndpoint):
        return bool(endpoint.addressFamily != socket.AF_UNIX)
    return isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint | TlsServerEndpoint)


def exposure(endpoint: Any) -> str:
    """Return who can reach an endpoint beside users of this machine that were meant, as words; "" if nobody can.

    Judged by what will listen, not by the text that it was made of. An unknown kind counts as reachable by anybody.
    """
    if isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint):
        return _reach(getattr(endpoint, "_interface", ""))
    if isinstance(endpoint, TlsServerEndpoint):
        return _reach(endpoint.interface)
    if isinstance(endpoint, UNIXServerEndpoint):
        mode = getattr(endpoint, "_mode", 0o666)
        return f"every user of this machine (its mode is {mode:o}; say mode=600)" if mode & _OTHERS else ""
    if isinstance(endpoint, AdoptedStreamServerEndpoint):
        return _reach_of_socket(endpoint.fileno)
    return "nobody knows whom (this kind of endpoint is not known to txbroker)"


def _reach(interface: str) -> str:
    if not interface or interface in ("::", "0.0.0.0"):
        return "whoever can reach this machine (it listens on every interface; say interface=127.0.0.1)"
    if is_loopback(interface):
        return ""
    is_address = isIPAddress(interface) or isIPv6Address(interface)
    return f"whoever can reach {interface}{'' if is_address else ' (for this machine alone say interface=127.0.0.1)'}"


def _reach_of_socket(descriptor: int) -> str:
    """Return the same for a socket that another process, as systemd, has opened and listens on already."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as adopted:
            address = adopted.getsockname()
            if adopted.family != socket.AF_UNIX:
                return _reach(address[0])
        mode = os.stat(address).st_mode & 0o777
    except (OSError, ValueError) as error:  # ValueError: the name of an abstract socket begins with a NUL
        return f"nobody knows whom (its socket cannot be looked at: {error})"
    return f"every user of this machine (the mode of {address} is {mode:o})" if mode & _OTHERS else ""


def open_ones(
    reactor: Any,
    descriptions: Iterable[str],
    known: KnownCertificates | None = None,
    but_proven: bool = False,
    proxies: Proxies = NO_PROXIES,
) -> dict[str, str]:
    """Return a sentence for each endpoint that lets in others than were meant, by its description; raises
    InvalidSetting.

    With ``but_proven`` one is left out whose peers must all have a certificate of its issuers. ``proxies`` on this
    machine reach all that listen to its loopback interface.
    """
    found = {}
    for description in descriptions:
        endpoint = endpoint_of(reactor, description, known)
        if but_proven and _wants_certificates(endpoint):
            continue
        who = exposure(endpoint)
        if not who and proxies.are_here and _is_of_a_network(endpoint):
            who = "whomever a proxy on this machine lets through (proxies)"
        if who:
            found[description] = f"{description} can be reached by {who}"
    return found


def _wants_certificates(endpoint: Any) -> bool:
    return isinstance(endpoint, TlsServerEndpoint) and endpoint.clients is ClientCertificates.REQUIRED


def address(kind: str, port: Any) -> str:
    """Return the address to connect to, as an endpoint string: ``tcp:127.0.0.1:7654``, ``unix:/run/txbroker``."""
    host = port.getHost()
    if hasattr(host, "port"):
        name = host.host.replace(":", "\\:")
        return f"{kind}:{name}:{host.port}"
    return f"{kind}:{os.fsdecode(getattr(host, 'name', str(host)))}"


def _with_backlog(description: str) -> str:
    """Return the endpoint with our backlog, if it is of a kind that has one and names none."""
    kind = description.partition(":")[0]
    if kind in ("tcp", "tcp6", "unix") and ":backlog=" not in description:
        return f"{description}:backlog={BACKLOG}"
    return description


def _port(description: str) -> str:
    """Return the port that was probably meant, if only a port or an address was given."""
    last = description.rpartition(":")[2]
    return last if last.isascii() and last.isdigit() else "7654"
