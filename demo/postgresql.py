"""A private server of PostgreSQL 15 from Debian's packages."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from demo.database_process import DatabaseProcess

BINARIES = Path("/usr/lib/postgresql/15/bin")
"""The full path: another PostgreSQL may be on the PATH."""

SUPERUSER = "postgres"


@dataclass(frozen=True)
class PostgresqlDatabase:
    """One database of a server. ``url`` is for psycopg, and for ``txbroker resolve --database``."""

    server: PostgresqlServer
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    @property
    def sqlalchemy_url(self) -> str:
        """Return the URL for ``sqlalchemy.create_engine``, with psycopg 3."""
        return self.url.replace("postgresql://", "postgresql+psycopg://", 1)

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new connection; ``options`` are those of ``psycopg.connect``."""
        return psycopg.connect(self.url, **options)

    def prepared(self) -> list[str]:
        """Return the identifiers of its prepared transactions, as PostgreSQL has them."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = %s ORDER BY prepared", [self.name]
            )
            return [gid for (gid,) in rows]

    def drop(self) -> None:
        """Remove the database, even if there are connections to it and prepared transactions in it."""
        with self.connect(autocommit=True) as connection:
            for gid in self.prepared():
                connection.execute(f"ROLLBACK PREPARED '{gid.replace(chr(39), chr(39) * 2)}'")
        with self.server.connect(autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')


class PostgresqlServer(DatabaseProcess):
    """A PostgreSQL server that forces its commits, is small, and logs only errors.

    ``settings`` are of ``postgresql.conf``. By default nothing can be prepared, as PostgreSQL is shipped; say
    ``{"max_prepared_transactions": 100}`` for PostgreSQL's own two-phase commit.
    """

    name = "PostgreSQL"
    package = "postgresql-15"
    users = ("postgres",)
    stop_signal = signal.SIGINT
    """The signal of a fast shutdown: SIGTERM would wait until all clients have disconnected."""

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(folder)
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": folder,
            "fsync": "on",
            "synchronous_commit": "on",
            "shared_buffers": "32MB",
            "max_connections": 100,
            "max_prepared_transactions": 0,
            **(settings or {}),
        }
        self._numbers = itertools.count(1)

    def program(self) -> Path:
        return BINARIES / "postgres"

    def initialise(self) -> None:
        # initdb need not force its files: before the first start there is nothing to lose
        self.run(
            str(BINARIES / "initdb"),
            f"--pgdata={self.data}",
            f"--username={SUPERUSER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        )

    def arguments(self) -> Sequence[str]:
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        return ["-D", str(self.data), *settings]

    def answers(self) -> bool:
        try:
            with self.connect(connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:  # it does not listen yet, or recovers
            return False
        return True

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.folder), safe='')}"

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection to the maintenance database."""
        return psycopg.connect(self.url("postgres"), **options)

    def create_database(self) -> PostgresqlDatabase:
        """Create a new, empty database."""
        database = PostgresqlDatabase(self, f"test_{next(self._numbers)}")
        with self.connect(autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database.name}"')
        return database
