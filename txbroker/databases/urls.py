"""Addresses of databases, for the command line's resolver.

An address is visible in the list of processes, in shells' histories and in logs. So the command line takes none with a
password, and no error shows more of it than its scheme, because a password in the wrong place looks like a host.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from txbroker import errors
from txbroker.databases.adapters.database import Connector

KNOWN: Final = "postgresql://USER@HOST/NAME, sqlite:///PATH, mysql://USER@HOST/NAME (or mariadb://)"
ELSEWHERE: Final = (
    "write the whole URL into a file that only you can read, and say file:PATH; or into an environment variable, and "
    "say env:NAME"
)
"""How to give a URL that has a password."""

_SECRETS: Final = ("password", "passwd", "sslpassword")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PORTS: Final = re.compile(r"[0-9,]*")


def connector(address: str) -> Connector:
    """Return a function that opens connections to the database at ``address``; raises Misuse if it cannot be
    understood.

    It is a URL without a password, or ``file:PATH`` or ``env:NAME``: then the file's first line, or the environment
    variable, is the URL, which may have one. A ``+driver`` as SQLAlchemy writes it is allowed and not needed.
    ``sqlite:///shop.db`` is relative, with four slashes absolute; the file must exist.
    """
    kind, _, rest = address.partition(":")
    if kind == "file":
        return _open(_first_line(rest), f"the first line of the file {rest!r}", secret=True)
    if kind == "env":
        return _open(_variable(rest), f"the environment variable {rest}", secret=True)
    return _open(address, "what was given", secret=False)


def _first_line(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        shown = f"file {path!r}" if "@" not in path else "named file"
        raise errors.Misuse(
            f"the {shown}, whose first line is to be the database's URL, cannot be read: {reason}; nothing was "
            "done"
        ) from None


def _variable(name: str) -> str:
    if name not in os.environ:
        shown = repr(name) if name.isidentifier() else "that was named"
        raise errors.Misuse(
            f"the environment variable {shown}, which is to be the database's URL, is not set; nothing was done"
        )
    return os.environ[name].strip()


def _open(url: str, where: str, secret: bool) -> Connector:
    scheme, separator, rest = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    if not separator:
        raise errors.Misuse(
            f"{where} is no address of a database: {KNOWN} are understood, and file:PATH or env:NAME that lead to "
            "such a one; nothing was done"
        )
    if kind == "sqlite":
        return _sqlite(rest)
    if kind in ("postgresql", "postgres"):
        return _postgresql(rest, where, secret)
    if kind in ("mysql", "mariadb"):
        return _mysql(rest, where, secret)
    shown = repr(scheme[:40]) if _SCHEME.fullmatch(scheme) else "something else (not shown)"
    raise errors.Misuse(
        f"{where} names {shown}, a kind of database that the command line does not open: {KNOWN} are "
        "understood. In a program, txbroker.Resolver takes any function that opens a connection; nothing was done"
    )


def _driver(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise errors.Misuse(
            f"the driver {name} is not installed ({error}): pip install '{package}'; nothing was done"
        ) from error


def _sqlite(rest: str) -> Connector:
    path = Path(unquote(rest.removeprefix("/")))
    if not path.is_file():
        shown = f" {str(path)!r}" if "@" not in rest else ""
        raise errors.Misuse(
            f"there is no file{shown} (sqlite:///PATH is relative, sqlite:////PATH absolute); nothing was done"
        )
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    return lambda: sqlite3.connect(uri, uri=True, timeout=5.0)


def _postgresql(rest: str, where: str, secret: bool) -> Connector:
    driver = _driver("psycopg", "txbroker[postgresql]")
    try:
        found = driver.conninfo.conninfo_to_dict(f"postgresql://{rest}")
    except driver.Error:  # its text quotes the URL
        raise _malformed(where) from None
    _check(rest, str(found.get("port") or ""), found, where, secret)
    return lambda: driver.connect(**found)


def _mysql(rest: str, where: str, secret: bool) -> Connector:
    driver = _driver("pymysql", "pymysql")
    try:
        parts = urlsplit(f"mysql://{rest}")
        wanted: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": parts.path.removeprefix("/"),
            **dict(parse_qsl(parts.query)),
        }
    except ValueError:  # its text quotes the URL
        raise _malformed(where) from None
    given = {name: value for name, value in wanted.items() if value}
    _check(rest, "", given, where, secret)
    return lambda: driver.connect(**given)


def _check(rest: str, port: str, found: Mapping[str, Any], where: str, secret: bool) -> None:
    """Refuse a password where others see it, and a URL in which one may have been taken for another part."""
    place, _, path = rest.partition("?")[0].partition("/")
    if "@" in path or place.count("@") > 1 or not _PORTS.fullmatch(port):
        raise _malformed(where)
    if not secret and any(found.get(name) for name in _SECRETS):
        raise errors.Misuse(
            "the database's URL has a password in it, which everybody on the machine can read in the list of "
            f"processes; nothing was done. Change it, if others may have seen it; then {ELSEWHERE}"
        )


def _malformed(where: str) -> errors.Misuse:
    return errors.Misuse(
        f"{where} cannot be understood as the URL of a database; it is not shown, for it may have a password in it. "
        f"{KNOWN} are understood, in which /, ?, #, @, : and % within a name or a password are written %2F, %3F, %23, "
        "%40, %3A and %25; nothing was done"
    )
