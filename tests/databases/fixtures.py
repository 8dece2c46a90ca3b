"""Real databases for tests. A missing server fails the test that wants it, with the command that installs it.

One server per kind and worker, started when the first test asks for it, and a fresh database for each test:

* ``postgresql``: ``max_prepared_transactions = 0``, as PostgreSQL is shipped. ``.url``, ``.connect()``.
* ``postgresql_two_phase``: the same, where ``PREPARE TRANSACTION`` works. ``.prepared()`` lists what is prepared.
* ``mariadb``: through PyMySQL.
* ``sqlite``: the path of a file that does not exist yet.

``postgresql_server_to_kill`` is a server that the test has for itself: ``.kill()`` (SIGKILL to the postmaster),
``.start()``, ``.create_database()``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from demo.database_process import DatabaseProcess
from demo.postgresql import PostgresqlDatabase, PostgresqlServer
from tests.databases.adapters.mariadb import MariadbDatabase, MariadbServer

Server = TypeVar("Server", bound=DatabaseProcess)


def new_folder() -> Path:
    """Short, for the socket in it; not below pytest's own, which only we may enter."""
    return Path(tempfile.mkdtemp(prefix="txbroker-db-", dir="/tmp"))


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server, started; removed with its folder at the end."""
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    with running(PostgresqlServer(new_folder())) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_two_phase_server() -> Iterator[PostgresqlServer]:
    with running(PostgresqlServer(new_folder(), {"max_prepared_transactions": 50})) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    with running(MariadbServer(new_folder())) as server:
        yield server


@pytest.fixture
def postgresql_server_to_kill() -> Iterator[PostgresqlServer]:
    with running(PostgresqlServer(new_folder(), {"max_prepared_transactions": 50})) as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server: PostgresqlServer) -> Iterator[PostgresqlDatabase]:
    database = postgresql_server.create_database()
    yield database
    database.drop()


@pytest.fixture
def postgresql_two_phase(postgresql_two_phase_server: PostgresqlServer) -> Iterator[PostgresqlDatabase]:
    database = postgresql_two_phase_server.create_database()
    yield database
    database.drop()


@pytest.fixture
def mariadb(mariadb_server: MariadbServer) -> Iterator[MariadbDatabase]:
    database = mariadb_server.create_database()
    yield database
    database.drop()


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    return tmp_path / "database.sqlite"
