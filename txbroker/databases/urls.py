"""Addresses of databases, as people write them: for the command line's resolver."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from txbroker import errors
from txbroker.databases.adapter import Connector

KNOWN = (
    "postgresql://USER:PASSWORD@HOST/NAME, sqlite:///PATH, mysql://USER:PASSWORD@HOST/NAME (or mariadb://)"
)


def connector(url: str) -> Connector:
    """What opens connections to the database at ``url``; raises Misuse for one that cannot be understood.

    A ``+driver`` as SQLAlchemy writes it is allowed and not needed. ``sqlite:///shop.db`` is relative, with four
    slashes absolute; the file must exist.
    """
    scheme, separator, rest = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    if not separator:
        raise errors.Misuse(f"{url!r} is no address of a database: {KNOWN} are understood; nothing was done")
    if kind in ("postgresql", "postgres"):
        driver = _driver("psycopg", "txbroker[postgresql]")
        return lambda: driver.connect(f"postgresql://{rest}")
    if kind == "sqlite":
        return _sqlite(rest)
    if kind in ("mysql", "mariadb"):
        return _mysql(url)
    raise errors.Misuse(
        f"{scheme!r} is a kind of database that the command line does not open: {KNOWN} are understood. In a program, "
        "txbroker.Resolver takes any function that opens a connection; nothing was done"
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
        raise errors.Misuse(
            f"there is no file {str(path)!r} (sqlite:///PATH is relative, sqlite:////PATH absolute); nothing was done"
        )
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    return lambda: sqlite3.connect(uri, uri=True, timeout=5.0)


def _mysql(url: str) -> Connector:
    driver = _driver("pymysql", "pymysql")
    parts = urlsplit(url)
    wanted: dict[str, Any] = {
        "host": parts.hostname,
        "port": parts.port,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.removeprefix("/"),
        **dict(parse_qsl(parts.query)),
    }
    given = {name: value for name, value in wanted.items() if value}
    return lambda: driver.connect(**given)
