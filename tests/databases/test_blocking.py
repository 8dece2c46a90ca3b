"""Test what ``txbroker.atomic`` promises, on sqlite3."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import sqlite3
import threading

import pytest

import txbroker
from tests.databases.adapters.lite_scene import numbers, rows, shop
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import State, errors

pytestmark = pytest.mark.slow


@pytest.fixture
def database(sqlite):
    with shop(sqlite) as connection:
        yield connection


# -- what it promises ------------------------------------------------------------------------------


def test_a_row_and_a_message_become_one(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        assert tx.outcome is State.ACTIVE
        database.execute("INSERT INTO orders VALUES (?, ?)", (42, "new"))
        receipt = tx.send(topic, b"order 42", key=b"42")
        assert receipt.offset is None
        assert values(broker, topic) == []
    assert tx.outcome is State.COMMITTED
    assert not database.in_transaction
    assert numbers(database) == [42]
    assert values(broker, topic) == [b"order 42"]
    assert broker.outcome(tx.xid).state is State.COMMITTED


def test_an_exception_takes_both_back_and_says_so(database, broker, topic):
    with (
        pytest.raises(ZeroDivisionError) as caught,
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        database.execute("INSERT INTO orders VALUES (1, 'new')")
        tx.send(topic, b"1")
        _ = 1 / 0
    assert tx.outcome is State.ROLLED_BACK
    assert "neither rows nor messages of the block are there" in caught.value.__notes__[0]
    assert (numbers(database), values(broker, topic)) == ([], [])
    assert not database.in_transaction


def test_a_refused_statement_leaves_no_message(database, broker, topic):
    database.execute("INSERT INTO orders VALUES (1, 'there')")
    database.commit()
    with pytest.raises(sqlite3.IntegrityError), txbroker.atomic(database, broker, mode="two-phase") as tx:
        tx.send(topic, b"1")
        database.execute("INSERT INTO orders VALUES (1, 'again')")
    assert values(broker, topic) == []


def test_a_deferred_constraint_that_commit_refuses_leaves_no_message(database, broker, topic):
    database.execute("PRAGMA foreign_keys = ON")
    database.execute(
        "CREATE TABLE lines (of_order INTEGER REFERENCES orders (number) DEFERRABLE INITIALLY DEFERRED)"
    )
    database.commit()
    with (
        pytest.raises(sqlite3.IntegrityError) as caught,
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        database.execute("INSERT INTO lines VALUES (99)")
        tx.send(topic, b"1")
    assert "neither rows nor messages of the block are there" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 5.0) is State.ROLLED_BACK
    assert values(broker, topic) == []


def test_a_refused_message_leaves_no_row(database, broker, topic):
    with pytest.raises(errors.UnknownTopic), txbroker.atomic(database, broker, mode="two-phase") as tx:
        database.execute("INSERT INTO orders VALUES (1, 'new')")
        tx.send("no-such-topic", b"1")
    assert numbers(database) == []


def test_a_block_that_sends_nothing_is_a_plain_commit(database, broker, topic):
    before = broker.status()["last_lsn"]
    with txbroker.atomic(database, broker, mode="two-phase") as tx:
        database.execute("INSERT INTO orders VALUES (1, 'new')")
    assert tx.outcome is State.COMMITTED
    assert numbers(database) == [1]
    assert rows(database) == []
    with pytest.raises(errors.UnknownTransaction):
        broker.outcome(tx.xid)
    assert broker.transactions([State.PREPARED], global_prefix=tx.xid.global_id) == []
    assert before <= broker.status()["last_lsn"]


def test_rows_of_acknowledged_commits_go_by_themselves(database, broker, topic):
    for number in range(20):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (?, 'new')", (number,))
            tx.send(topic, b"%d" % number)
    eventually(lambda: rows(database) == [])
    assert values(broker, topic) == [b"%d" % number for number in range(20)]
    assert broker.resolver.status.failure == ""
    assert broker.resolver.status.is_running


def test_closing_the_broker_connection_leaves_no_rows_and_no_thread(database, shared_broker, topic):
    with txbroker.connect(shared_broker.address) as broker:
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (1, 'new')")
            tx.send(topic, b"1")
        background = broker.resolver
    assert rows(database) == []
    assert not background.status.is_running
    assert broker.resolver is None


# -- consuming -------------------------------------------------------------------------------------


def test_a_message_is_consumed_once_with_its_row_and_what_is_sent_on(database, broker, topic):
    broker.create_topic(f"{topic}-on")
    for number in range(3):
        broker.send(topic, b"%d" % number)
    for _ in range(3):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            message = tx.receive(topic, group=topic, timeout=5.0)
            database.execute("INSERT INTO orders VALUES (?, 'billed')", (int(message.value),))
            tx.send(f"{topic}-on", message.value)
    with txbroker.atomic(database, broker, mode="two-phase") as tx:
        assert tx.receive(topic, group=topic, timeout=0.05) is None
    eventually(lambda: [at.offset for at in broker.group_offsets(topic)] == [3])
    assert numbers(database) == [0, 1, 2]
    assert values(broker, f"{topic}-on") == [b"0", b"1", b"2"]


def test_what_a_failed_block_has_received_comes_again_in_order(database, broker, topic):
    for number in range(4):
        broker.send(topic, b"%d" % number)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker, mode="two-phase") as tx:
            assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(3)] == [b"0", b"1", b"2"]
            _ = 1 / 0
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(4)] == [
            b"0",
            b"1",
            b"2",
            b"3",
        ]
    assert [at.offset for at in broker.group_offsets(topic)] == [4]


def test_a_position_alone_is_something_to_decide(database, broker, topic):
    broker.send(topic, b"1")
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        assert tx.receive(topic, group=topic, timeout=5.0).value == b"1"
    assert broker.outcome(tx.xid).state is State.COMMITTED


def test_a_consumer_that_lost_its_partitions_cannot_commit_with_the_row(
    database, broker, shared_broker, topic
):
    broker.send(topic, b"1")
    with (
        pytest.raises(errors.GenerationFenced),
        txbroker.connect(shared_broker.address) as other,
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        assert tx.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"1"
        with other.transaction() as theirs:
            assert theirs.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"1"
        database.execute("INSERT INTO orders VALUES (1, 'billed')")
    assert tx.outcome is State.ROLLED_BACK
    assert numbers(database) == []
    with txbroker.atomic(
        database, broker, mode="two-phase"
    ) as tx:  # it claims anew, and goes on where the other one has got
        assert tx.receive(topic, group=topic, partitions=[0], timeout=0.3) is None


def test_threads_share_a_broker_connection_with_a_database_connection_each(sqlite, database, broker, topic):
    failures = []

    def work(start):
        try:
            with contextlib.closing(sqlite3.connect(sqlite, timeout=30.0)) as mine:
                for number in range(start, start + 10):
                    with txbroker.atomic(mine, broker, mode="two-phase") as tx:
                        mine.execute("INSERT INTO orders VALUES (?, 'new')", (number,))
                        tx.send(topic, b"%d" % number)
        except Exception as error:  # noqa: BLE001 - the assertion below shows it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    eventually(lambda: sorted(map(int, values(broker, topic))) == numbers(database))
    assert len(numbers(database)) == 40
