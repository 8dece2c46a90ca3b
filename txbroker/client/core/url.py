"""Addresses of brokers: ``tcp:HOST:PORT``, ``unix:PATH``, ``tls:HOST:PORT[:ca=FILE][:cert=FILE][:key=FILE]``."""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from journal.formats.filenames import ADMIN_SOCKET
from txbroker.errors import Misuse

TLS_FORM = "tls:HOST:PORT[:ca=FILE][:cert=FILE][:key=FILE]"

DEFAULT = "tcp:127.0.0.1:7654"

_URLS = ("tcp", "tls", "txbroker")
_HOST = re.compile(r"[^\s/@\[\]]+")
_PLACE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?", re.ASCII)
"""A host, with a port or without."""
_SECRET = re.compile(r"@|(?:pass(?:word|wd|phrase)?|pwd|token|secret)=", re.IGNORECASE)
"""What there may be of a password. Text with it is never repeated."""
_FILES = re.compile(r":(?:ca|cert|key)=.*", re.DOTALL)
_MORE = re.compile(r":\w+=")
_OPTION = re.compile(r":(?=(?:ca|cert|key)=)")
"""The colon before an option. Others are of the file's name."""


class Address(NamedTuple):
    """The address at which a broker listens. ``kind`` is tcp, unix or tls; ``path`` is the socket's for unix.

    For tls, ``ca`` is a file of certificates to trust ("": those of the system); ``cert`` is the client's own, with
    those that signed it ("": none), and ``key`` its key ("": it is in the same file).
    """

    kind: str
    host: str = ""
    port: int = 0
    path: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def shows_who(self) -> bool:
        """Whether a connection to it shows by itself who the client is: by its certificate, or as the owner of the data
        whose administrator's socket this is.
        """
        return bool(self.cert) or (self.kind == "unix" and posixpath.basename(self.path) == ADMIN_SOCKET)

    @property
    def place(self) -> str:
        """The address as text for people; it can be parsed again."""
        if self.kind == "unix":
            return f"unix:{self.path}"
        return f"{self.kind}:{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse(url: str) -> Address:
    """Parse an address; raises :class:`Misuse` with the reason if it is wrong. IPv6 hosts go in brackets."""
    if not isinstance(url, str):
        raise _bad(url, f"it is a {type(url).__name__}, and an address is one text")
    kind, _, rest = url.partition(":")
    if (kind != "unix" or rest.startswith("//")) and _SECRET.search(_FILES.sub("", url)):
        raise _bad(url, "")
    if meant := _meant(url, kind, rest):
        raise _bad(url, f"write {meant!r}")
    if kind == "unix":
        if not rest:
            raise _bad(url, "it has no path")
        return Address("unix", path=rest)
    if kind not in ("tcp", "tls"):
        raise _bad(url, f"{kind!r} is not known")
    host, rest = _host(url, rest)
    port, _, options = rest.partition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _bad(url, f"{port!r} is not a port")
    return Address(kind, host, int(port), **_options(url, kind, options))


def _options(url: str, kind: str, options: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in _OPTION.split(options) if options else []:
        name, _, value = option.partition("=")
        if kind != "tls" or name not in ("ca", "cert", "key") or not value:
            raise _bad(url, f"{option!r} is not an option of {kind}")
        if _MORE.search(value):  # what follows may be a secret, and would be shown as a part of a file's name
            raise _bad(url, f"after {name}= comes something that is not an option of {kind}")
        if name in found:
            raise _bad(url, f"{name} is there twice")
        found[name] = value
    if "key" in found and "cert" not in found:
        raise _bad(url, "a key is of no use without its certificate (cert=FILE)")
    return found


def _host(url: str, rest: str) -> tuple[str, str]:
    if rest.startswith("["):
        host, _, rest = rest[1:].partition("]:")
    else:
        host, _, rest = rest.partition(":")
    if not host:
        raise _bad(url, "it has no host")
    if not _HOST.fullmatch(host):
        raise _bad(url, f"{host!r} is not a host")
    return host, rest


def no_unix(address: Address) -> Misuse:
    """Return the error for the address of a UNIX socket on a system that has none."""
    return Misuse(
        f"{address.place}: Python has no UNIX sockets on this system (no AF_UNIX); nothing was opened. "
        "Have the broker listen on tcp or tls, and connect to tcp:HOST:PORT or tls:HOST:PORT"
    )


def _meant(url: str, kind: str, rest: str) -> str:
    """Return the address for text that looks like a URL, or lacks its kind; "" for other text."""
    path = rest.lstrip("/")
    if rest.startswith("//") and kind == "unix":
        return f"unix:/{path}"
    if rest.startswith("//"):
        return f"{'tls' if kind == 'tls' else 'tcp'}:{_with_port(path.rstrip('/'))}" if kind in _URLS else ""
    return f"tcp:{_with_port(url)}" if _PLACE.fullmatch(url) and kind not in ("tcp", "tls", "unix") else ""


def _with_port(place: str) -> str:
    return place if re.search(r":\d+$", place) else f"{place}:{DEFAULT.rpartition(':')[2]}"


def _bad(url: object, reason: str) -> Misuse:
    if _SECRET.search(str(url)):
        return Misuse(
            "what was given is not a broker's address; it is not shown, for it may have a password in it. Addresses "
            f"have no user and no password: known are tcp:HOST:PORT, unix:PATH and {TLS_FORM}, and a client is given "
            "user=, and password= or password_file=, beside its address; nothing was opened. If others may have seen "
            "the password, change it"
        )
    return Misuse(
        f"{url!r} is not a broker's address: {reason}; "
        f"known are tcp:HOST:PORT, unix:PATH and {TLS_FORM}; nothing was opened"
    )
