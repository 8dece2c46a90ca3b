"""A private server of MariaDB from Debian's packages: the generic path of any DB-API driver."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from demo.database_process import DatabaseProcess

INSTALL = Path("/usr/bin/mariadb-install-db")


@dataclass(frozen=True)
class MariadbDatabase:
    """One database of a server. ``url`` is as SQLAlchemy writes it."""

    server: MariadbServer
    name: str

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@localhost/{self.name}?unix_socket={self.server.socket}"

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A new connection; ``options`` are those of ``pymysql.connect``."""
        return self.server.connect(database=self.name, **options)

    def drop(self) -> None:
        """Remove it; connections that hold locks in it are ended."""
        with self.server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", [self.name])
            for (number,) in cursor.fetchall():
                with suppress(pymysql.err.OperationalError):  # it may have ended since
                    cursor.execute(f"KILL {number}")
            cursor.execute(f"DROP DATABASE `{self.name}`")


class MariadbServer(DatabaseProcess):
    """Every commit is forced; InnoDB, default isolation."""

    name = "MariaDB"
    package = "mariadb-server"
    users = ("mysql",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.socket = folder / "socket"
        # A server that starts removes temporary tables that it finds: in /tmp those of one that is being set up, too.
        self.tmpdir = f"--tmpdir={folder}"
        self._numbers = itertools.count(1)

    def program(self) -> Path:
        return Path("/usr/sbin/mariadbd")

    def initialise(self) -> None:
        self.run(
            str(INSTALL),
            "--no-defaults",
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            self.tmpdir,
        )

    def arguments(self) -> Sequence[str]:
        return [
            "--no-defaults",
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            self.tmpdir,
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
        ]

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:  # PyMySQL leaves its own open when nobody listens
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        try:
            with self.connect(connect_timeout=10) as connection:
                connection.ping()
        except pymysql.err.OperationalError:  # it listens, but has not begun
            return False
        return True

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A connection, by default to no database."""
        return pymysql.connect(unix_socket=str(self.socket), user="root", **options)

    def create_database(self) -> MariadbDatabase:
        """A new, empty one."""
        database = MariadbDatabase(self, f"test_{next(self._numbers)}")
        with self.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{database.name}`")
        return database
