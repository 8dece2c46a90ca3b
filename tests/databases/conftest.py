"""For the tests of blocks: a real broker, one for all of a worker or one to kill, and databases with tables in them."""

import contextlib
import gc
import shutil
import sqlite3
import tempfile
import uuid
from pathlib import Path

import pytest

import txbroker
from tests.databases.orders import make_tables, opener
from tests.databases.orm.orm import SHOPS, engine_url, make_shop
from tests.support.broker_process import BrokerProcess
from txbroker.databases import open_blocks


@pytest.fixture(scope="session")
def shared_broker():
    folder = Path(tempfile.mkdtemp(prefix="txbroker-blocks-", dir="/dev/shm"))
    try:
        with BrokerProcess(folder / "data") as process:
            yield process
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def broker(shared_broker):
    """A connection to a broker that other tests use too: topics have names of their own.

    Its patience is that of a disk on which other tests write gigabytes: a force may take seconds then.
    """
    with txbroker.connect(shared_broker.address, timeout=60.0) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    return name


@pytest.fixture
def mortal_broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def open_database(request):
    """What opens connections to a database with tables; of every kind in turn."""
    opens = opener(request.getfixturevalue(request.param))
    with contextlib.closing(opens()) as database:
        make_tables(database)
    return opens


@pytest.fixture
def database(open_database):
    connection = open_database()
    yield connection
    if getattr(connection, "open", True):  # PyMySQL minds being closed twice, and a block may have done it
        connection.close()


@pytest.fixture
def rows(postgresql):
    """A connection to PostgreSQL, with tables."""
    with contextlib.closing(postgresql.connect()) as connection:
        make_tables(connection)
        yield connection


@pytest.fixture
def lite(sqlite):
    """A connection to SQLite, with tables."""
    with contextlib.closing(sqlite3.connect(sqlite)) as connection:
        make_tables(connection)
        yield connection


@pytest.fixture
def engine(postgresql):
    """SQLAlchemy's, on a shop."""
    engine = make_shop(postgresql.sqlalchemy_url)
    yield engine
    engine.dispose()


@pytest.fixture(params=SHOPS)
def any_engine(request):
    """The same on every kind of database in turn."""
    engine = make_shop(engine_url(request, request.param))
    yield engine
    engine.dispose()


@pytest.fixture
def nothing_left():
    """No transaction is remembered when the test is over, but for those that something still holds.

    A block that an earlier test has left on purpose stays until its database connection is in another one.
    """
    before = list(open_blocks._in_block.values())

    def check():
        gc.collect()
        assert [each for each in open_blocks._in_block.values() if each not in before] == []

    yield check
    check()
