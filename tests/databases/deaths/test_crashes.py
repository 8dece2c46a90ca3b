"""Kill the program, the broker or the database at each step of a block: in the end both sides have it, or neither."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import os
import sqlite3

import psycopg
import pytest

import txbroker
from tests.databases.deaths.program import MOMENTS
from tests.databases.topic_content import resolve_until_done, values
from tests.support.dying_program import run_until_killed
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.databases.urls import connector

pytestmark = pytest.mark.slow

DECIDED = MOMENTS.index("after commit")


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request):
    found = request.getfixturevalue(request.param)
    if request.param == "sqlite":
        sqlite3.connect(found).close()
        found.touch()
        text = f"sqlite:///{found}"
    else:
        text = found.url
    with contextlib.closing(connector(text)()) as database:
        make_tables(database)
    return text


def make_tables(database):
    cursor = database.cursor()
    cursor.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state VARCHAR(20))")
    cursor.close()
    database.commit()
    txbroker.create_decision_table(database)


def numbers(url):
    with contextlib.closing(connector(url)()) as database:
        cursor = database.cursor()
        cursor.execute("SELECT number FROM orders")
        try:
            return [number for (number,) in cursor.fetchall()]
        finally:
            cursor.close()


@pytest.mark.sampled(test=8)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_program_that_is_killed_leaves_both_or_neither(url, broker, shared_broker, topic, moment):
    broker.create_topic(f"{topic}-in")
    broker.send(f"{topic}-in", b"a")
    arguments = (url, shared_broker.address, topic, 7, moment)
    run_until_killed("tests.databases.deaths.program", *arguments, killed=moment != "never")
    in_doubt = moment in ("after prepare", "after commit", "before the broker's commit")
    resolve_until_done(connector(url), broker, in_doubt)
    there = MOMENTS.index(moment) >= DECIDED
    assert numbers(url) == ([7] if there else [])
    assert values(broker, topic) == ([b"7 from a"] if there else [])
    eventually(lambda: all(not at.pending_by for at in broker.group_offsets(topic)))
    assert [at.offset for at in broker.group_offsets(topic)] in ([[1]] if there else [[], [0]])
    with broker.transaction() as tx:
        again = tx.receive(f"{topic}-in", group=topic, timeout=0.2 if there else 10.0)
    assert (again is None) is there


@pytest.fixture
def database(sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as connection:
        make_tables(connection)
        yield connection


@pytest.fixture
def connection(mortal_broker):
    connected = txbroker.connect(mortal_broker.address, timeout=1.5)
    connected.create_topic("t")
    connected.send("t", b"first")  # so that the way to the topic is known
    yield connected
    with contextlib.suppress(errors.TxBrokerError):
        connected.close(0.5)


def count(database):
    return database.execute("SELECT count(*) FROM orders").fetchone()[0]


def insert(database):
    database.execute("INSERT INTO orders VALUES (1, 'new')")


def after(tx, name, act):
    """Have something happen after a step of the block."""
    side = tx._side
    found = getattr(side, name)

    async def step(*arguments):
        result = await found(*arguments)
        act()
        return result

    setattr(side, name, step)


def test_a_broker_that_is_down_at_the_first_send_takes_the_row_with_it(mortal_broker, connection, database):
    # Whether the send or the prepare is the first to find nobody there is a race with the news of the kill.
    with pytest.raises((errors.ConnectionUnavailable, errors.TransactionRolledBack)) as caught:
        with txbroker.atomic(database, connection, mode="two-phase") as tx:
            insert(database)
            mortal_broker.kill()
            tx.send("t", b"1")
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert count(database) == 0


def test_a_broker_that_dies_after_the_send_takes_the_row_with_it(mortal_broker, connection, database):
    with pytest.raises(errors.TransactionRolledBack) as caught:
        with txbroker.atomic(database, connection, mode="two-phase") as tx:
            insert(database)
            tx.send("t", b"1")
            mortal_broker.kill()
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert count(database) == 0


def test_a_broker_that_does_not_answer_the_prepare_takes_the_row_with_it_and_mends_later(
    mortal_broker, connection, database
):
    with pytest.raises(
        errors.TransactionRolledBack, match=r"did not say in time.*not asked to commit"
    ) as caught:
        with txbroker.atomic(database, connection, mode="two-phase") as tx:
            insert(database)
            tx.send("t", b"1")
            mortal_broker.pause()
    assert count(database) == 0
    mortal_broker.resume()
    assert "can be run again" in str(caught.value)
    with txbroker.connect(mortal_broker.address) as other:
        eventually(lambda: other.transactions() == [])
        assert values(other, "t") == [b"first"]
        with txbroker.atomic(database, other, wait="commit", mode="two-phase") as again:
            insert(database)
            again.send("t", b"1")
        assert values(other, "t") == [b"first", b"1"]
    assert tx.outcome is State.ROLLED_BACK


def test_a_broker_that_dies_once_it_has_prepared_shows_the_message_after_its_restart(
    mortal_broker, connection, database
):
    with txbroker.atomic(database, connection, mode="two-phase") as tx:
        insert(database)
        tx.send("t", b"1")
        after(tx, "prepare", mortal_broker.kill)
    assert tx.outcome is State.COMMITTED
    assert count(database) == 1
    mortal_broker.start()
    with txbroker.connect(mortal_broker.address) as other:
        eventually(lambda: values(other, "t") == [b"first", b"1"])  # nobody calls anything for it
    eventually(lambda: database.execute("SELECT count(*) FROM txbroker_decision").fetchone()[0] == 0)


def test_waiting_for_a_dead_broker_says_that_both_are_committed(mortal_broker, connection, database):
    with pytest.raises(errors.DeliveryPending, match="do not do the work again"):
        with txbroker.atomic(database, connection, wait="commit", timeout=0.3, mode="two-phase") as tx:
            insert(database)
            tx.send("t", b"1")
            after(tx, "prepare", mortal_broker.kill)
    assert tx.outcome is State.COMMITTED
    assert count(database) == 1
    mortal_broker.start()
    with txbroker.connect(mortal_broker.address) as other:
        eventually(lambda: values(other, "t") == [b"first", b"1"])


def test_a_program_that_gives_up_on_a_dead_broker_is_made_good_by_any_resolver(
    mortal_broker, connection, database, sqlite
):
    with txbroker.atomic(database, connection, mode="two-phase") as tx:
        insert(database)
        tx.send("t", b"1")
        after(tx, "prepare", mortal_broker.kill)
    connection.close(0.1)
    mortal_broker.start()
    with txbroker.connect(mortal_broker.address) as other:
        assert values(other, "t") == [b"first"]
        with txbroker.Resolver(lambda: sqlite3.connect(sqlite), other) as resolver:
            assert resolver.resolve().committed == [tx.xid]
        assert values(other, "t") == [b"first", b"1"]
        assert database.execute("SELECT xid FROM txbroker_decision").fetchall() == []


def test_another_broker_behind_the_address_is_told_nothing(mortal_broker, connection, database, tmp_path):
    with txbroker.atomic(database, connection, mode="two-phase") as tx:
        insert(database)
        tx.send("t", b"1")
        after(tx, "prepare", mortal_broker.kill)
    original, mortal_broker.data_dir = mortal_broker.data_dir, tmp_path / "others"
    mortal_broker.start()
    with pytest.raises(errors.BrokerReplaced):
        connection.ping()
    with txbroker.connect(mortal_broker.address) as replaced:
        with txbroker.Resolver(lambda: sqlite3.connect(database_path(database)), replaced) as resolver:
            assert resolver.resolve().removed == 0
    assert database.execute("SELECT count(*) FROM txbroker_decision").fetchone()[0] == 1
    mortal_broker.kill()
    mortal_broker.data_dir = original
    mortal_broker.start()
    with txbroker.connect(mortal_broker.address) as back:
        with txbroker.Resolver(lambda: sqlite3.connect(database_path(database)), back) as resolver:
            assert resolver.resolve().committed == [tx.xid]
        assert values(back, "t") == [b"first", b"1"]


def database_path(database):
    return database.execute("PRAGMA database_list").fetchone()[2]


def test_postgresql_that_dies_before_commit_is_asked_again_after_its_restart(
    postgresql_server_to_kill, broker, topic
):
    server = postgresql_server_to_kill
    rows = server.create_database()
    with contextlib.closing(rows.connect()) as database:
        make_tables(database)
        with pytest.raises((errors.OutcomeUnknown, psycopg.OperationalError)):
            with txbroker.atomic(database, broker, mode="two-phase") as tx:
                insert(database)
                tx.send(topic, b"1")
                after(tx, "prepare", server.kill)
    assert tx.outcome in (State.PREPARED, State.ROLLED_BACK)
    server.start()
    broker.resolver.hurry()
    assert broker.wait_outcome(tx.xid, 30.0) is State.ROLLED_BACK  # the resolver in the background
    assert numbers(rows.url) == []
    assert values(broker, topic) == []
    broker.close()


def test_a_child_process_is_told_that_the_connection_is_its_parents(database, broker, topic):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
        except errors.ProcessForked:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        insert(database)
        tx.send(topic, b"1")
    assert values(broker, topic) == [b"1"]


def test_two_resolvers_at_a_time_do_no_harm(database, sqlite, broker, topic):
    abandoned = txbroker.atomic(database, broker, mode="two-phase")
    tx = abandoned.__enter__()
    tx.send(topic, b"1")
    tx._side.transaction.prepare()  # and then nothing: its database transaction ends without a commit
    database.rollback()
    tx.deciding._unregister()

    def open_database():
        return sqlite3.connect(sqlite)

    with (
        txbroker.Resolver(open_database, broker) as first,
        txbroker.Resolver(open_database, broker) as second,
    ):
        assert first.in_doubt()[0] == second.in_doubt()[0] == [tx.xid]
        assert first.decide(tx.xid) == second.decide(tx.xid) == "rolled back"
        assert first.tell(tx.xid, "rolled back").name == "DONE"
        first.remove([tx.xid.global_id.decode()])
        assert second.tell(tx.xid, "rolled back").name in ("DONE", "ENDED")
        second.remove([tx.xid.global_id.decode()])
    assert broker.wait_outcome(tx.xid, 1.0) is State.ROLLED_BACK
    assert database.execute("SELECT xid FROM txbroker_decision").fetchall() == []
