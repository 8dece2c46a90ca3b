"""Test MariaDB, through PyMySQL, and through drivers that report less."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import itertools

import pymysql
import pytest

import txbroker
from tests.support.waiting import eventually
from txbroker import errors

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(mariadb):
    with contextlib.closing(mariadb.connect()) as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY) ENGINE=InnoDB")
        txbroker.create_decision_table(connection)
        yield connection


def order(connection, number):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", (number,))


def test_mariadb_goes_through_it_all(mariadb, shop, broker, topic):
    numbers = itertools.count()
    for number in itertools.islice(numbers, 5):
        with txbroker.atomic(shop, broker, mode="two-phase") as tx:
            order(shop, number)
            tx.send(topic, b"%d" % number)
    eventually(lambda: len(broker.read(topic, 0, 0)) == 5)

    def left():
        with contextlib.closing(mariadb.connect()) as fresh, fresh.cursor() as cursor:
            cursor.execute("SELECT xid FROM txbroker_decision")
            return cursor.fetchall()

    eventually(lambda: left() == ())
    assert broker.resolver.status.failure == ""


def test_a_statement_that_commits_by_itself_is_found_in_mariadb(shop, broker, topic):
    with (
        pytest.raises(errors.Misuse, match="SAVEPOINT"),
        txbroker.atomic(shop, broker, mode="two-phase") as tx,
    ):
        order(shop, 1)
        tx.send(topic, b"1")
        with shop.cursor() as cursor:
            cursor.execute("CREATE TABLE more (number INTEGER)")
    assert broker.read(topic, 0, 0) == []


def test_autocommit_is_refused_in_mariadb(mariadb, shop, broker):
    refused = pytest.raises(errors.Misuse, match="autocommit")
    with contextlib.closing(mariadb.connect(autocommit=True)) as by_itself, refused:
        txbroker.atomic(by_itself, broker, mode="two-phase").__enter__()


def test_dictionaries_as_rows_do_not_matter_in_mariadb(mariadb, shop, broker, topic):
    with contextlib.closing(mariadb.connect(cursorclass=pymysql.cursors.DictCursor)) as connection:
        with txbroker.atomic(connection, broker, wait="commit", mode="two-phase") as tx:
            order(connection, 1)
            tx.send(topic, b"1")
    assert len(broker.read(topic, 0, 0)) == 1


def test_a_table_without_transactions_is_refused_in_mariadb(mariadb, shop, broker):
    with shop.cursor() as cursor:
        cursor.execute("ALTER TABLE txbroker_decision ENGINE=MyISAM")
    with (
        contextlib.closing(mariadb.connect()) as fresh,
        pytest.raises(errors.DecisionTableRefused, match="MyISAM"),
    ):
        txbroker.atomic(fresh, broker, mode="two-phase").__enter__()


def test_a_server_that_does_not_force_is_refused_in_mariadb(mariadb, shop, broker):
    with shop.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        with pytest.raises(errors.DecisionNotDurable, match="innodb_flush_log_at_trx_commit = 2"):
            txbroker.atomic(shop, broker, mode="two-phase").__enter__()
    finally:
        with shop.cursor() as cursor:
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


class LikeMySQLdb:
    """A real connection that does not say whether a transaction is open."""

    __module__ = "MySQLdb.connections"

    def __init__(self, connection):
        self._connection = connection
        self.cursor, self.commit, self.rollback = connection.cursor, connection.commit, connection.rollback
        self.close, self.get_autocommit = connection.close, connection.get_autocommit


class LikeMysqlConnector:
    """A real connection that says it by other names."""

    __module__ = "mysql.connector.connection"

    def __init__(self, connection):
        self._connection = connection
        self.cursor, self.commit, self.rollback = connection.cursor, connection.commit, connection.rollback
        self.close = connection.close

    @property
    def in_transaction(self):
        return bool(self._connection.server_status & 1)

    @property
    def autocommit(self):
        return self._connection.get_autocommit()


@pytest.mark.parametrize("driver", [LikeMySQLdb, LikeMysqlConnector])
def test_what_was_done_before_the_block_is_not_committed_by_its_beginning(
    mariadb, shop, broker, topic, driver
):
    """START TRANSACTION commits what is open, and a driver may not say that something is."""
    with contextlib.closing(driver(mariadb.connect())) as connection:
        order(connection, 1)
        with pytest.raises(ZeroDivisionError), txbroker.atomic(connection, broker, mode="two-phase") as tx:
            order(connection, 2)
            tx.send(topic, b"2")
            _ = 1 / 0
        assert stored(shop) == []
        order(connection, 3)
        with txbroker.atomic(
            connection, broker, wait="commit", connect_database=mariadb.connect, mode="two-phase"
        ) as tx:
            order(connection, 4)
            tx.send(topic, b"4")
    assert stored(shop) == [3, 4]
    assert [message.value for message in broker.read(topic, 0, 0)] == [b"4"]


@pytest.mark.parametrize("driver", [LikeMySQLdb, LikeMysqlConnector])
def test_autocommit_is_refused_whatever_a_driver_calls_it(mariadb, shop, broker, driver):
    with contextlib.closing(driver(mariadb.connect(autocommit=True))) as connection:
        with pytest.raises(errors.Misuse, match="autocommit"):
            txbroker.atomic(connection, broker, mode="two-phase").__enter__()


def stored(shop):
    shop.rollback()
    with shop.cursor() as cursor:
        cursor.execute("SELECT number FROM orders ORDER BY number")
        return [number for (number,) in cursor.fetchall()]
