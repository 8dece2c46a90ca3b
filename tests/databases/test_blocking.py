"""``txbroker.atomic`` on sqlite3: what it promises, what it refuses and what it says then."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import re
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

import txbroker
from txbroker import State, errors

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def database(sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")
        connection.commit()
        txbroker.create_decision_table(connection)
        yield connection


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def numbers(database):
    return [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def rows(database):
    return database.execute("SELECT xid FROM txbroker_decision").fetchall()


# -- what it promises ------------------------------------------------------------------------------


def test_a_row_and_a_message_become_one(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit") as tx:
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
    with pytest.raises(ZeroDivisionError) as caught, txbroker.atomic(database, broker) as tx:
        database.execute("INSERT INTO orders VALUES (1, 'new')")
        tx.send(topic, b"1")
        _ = 1 / 0
    assert tx.outcome is State.ROLLED_BACK
    assert "neither rows nor messages of it are there" in caught.value.__notes__[0]
    assert (numbers(database), values(broker, topic)) == ([], [])
    assert not database.in_transaction


def test_a_refused_statement_leaves_no_message(database, broker, topic):
    database.execute("INSERT INTO orders VALUES (1, 'there')")
    database.commit()
    with pytest.raises(sqlite3.IntegrityError), txbroker.atomic(database, broker) as tx:
        tx.send(topic, b"1")
        database.execute("INSERT INTO orders VALUES (1, 'again')")
    assert values(broker, topic) == []


def test_a_deferred_constraint_that_commit_refuses_leaves_no_message(database, broker, topic):
    database.execute("PRAGMA foreign_keys = ON")
    database.execute(
        "CREATE TABLE lines (of_order INTEGER REFERENCES orders (number) DEFERRABLE INITIALLY DEFERRED)"
    )
    database.commit()
    with pytest.raises(sqlite3.IntegrityError) as caught, txbroker.atomic(database, broker) as tx:
        database.execute("INSERT INTO lines VALUES (99)")
        tx.send(topic, b"1")
    assert "neither rows nor messages of it are there" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 5.0) is State.ROLLED_BACK
    assert values(broker, topic) == []


def test_a_refused_message_leaves_no_row(database, broker, topic):
    with pytest.raises(errors.UnknownTopic), txbroker.atomic(database, broker) as tx:
        database.execute("INSERT INTO orders VALUES (1, 'new')")
        tx.send("no-such-topic", b"1")
    assert numbers(database) == []


def test_a_block_that_sends_nothing_is_a_plain_commit(database, broker, topic):
    before = broker.status()["last_lsn"]
    with txbroker.atomic(database, broker) as tx:
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
        with txbroker.atomic(database, broker) as tx:
            database.execute("INSERT INTO orders VALUES (?, 'new')", (number,))
            tx.send(topic, b"%d" % number)
    eventually(lambda: rows(database) == [])
    assert values(broker, topic) == [b"%d" % number for number in range(20)]
    assert broker.resolver.status.failure == ""
    assert broker.resolver.status.is_running


def test_closing_the_broker_connection_leaves_no_rows_and_no_thread(database, shared_broker, topic):
    with txbroker.connect(shared_broker.address) as broker:
        with txbroker.atomic(database, broker) as tx:
            database.execute("INSERT INTO orders VALUES (1, 'new')")
            tx.send(topic, b"1")
        background = broker.resolver
    assert rows(database) == []
    assert not background.status.is_running
    assert broker.resolver is None


def test_the_block_of_the_readme_does_what_it_says(shared_broker, broker, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    [example] = [block for block in blocks if "txbroker.atomic(" in block]
    monkeypatch.chdir(tmp_path)
    broker.create_topic("orders", partitions=4)
    found = {}
    exec(example.replace("tcp:127.0.0.1:7654", shared_broker.address), found)
    with contextlib.closing(found["database"]) as database:
        assert database.execute("SELECT * FROM orders").fetchall() == [(42, "billed")]
    assert found["message"].value == b"order 42"
    broker.delete_topic("orders")


# -- consuming -------------------------------------------------------------------------------------


def test_a_message_is_consumed_once_with_its_row_and_what_is_sent_on(database, broker, topic):
    broker.create_topic(f"{topic}-on")
    for number in range(3):
        broker.send(topic, b"%d" % number)
    for _ in range(3):
        with txbroker.atomic(database, broker) as tx:
            message = tx.receive(topic, group=topic, timeout=5.0)
            database.execute("INSERT INTO orders VALUES (?, 'billed')", (int(message.value),))
            tx.send(f"{topic}-on", message.value)
    with txbroker.atomic(database, broker) as tx:
        assert tx.receive(topic, group=topic, timeout=0.05) is None
    eventually(lambda: [at.offset for at in broker.group_offsets(topic)] == [3])
    assert numbers(database) == [0, 1, 2]
    assert values(broker, f"{topic}-on") == [b"0", b"1", b"2"]


def test_what_a_failed_block_has_received_comes_again_in_order(database, broker, topic):
    for number in range(4):
        broker.send(topic, b"%d" % number)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker) as tx:
            assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(3)] == [b"0", b"1", b"2"]
            _ = 1 / 0
    with txbroker.atomic(database, broker, wait="commit") as tx:
        assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(4)] == [
            b"0",
            b"1",
            b"2",
            b"3",
        ]
    assert [at.offset for at in broker.group_offsets(topic)] == [4]


def test_a_position_alone_is_something_to_decide(database, broker, topic):
    broker.send(topic, b"1")
    with txbroker.atomic(database, broker, wait="commit") as tx:
        assert tx.receive(topic, group=topic, timeout=5.0).value == b"1"
    assert broker.outcome(tx.xid).state is State.COMMITTED


def test_a_consumer_that_lost_its_partitions_cannot_commit_with_the_row(
    database, broker, shared_broker, topic
):
    broker.send(topic, b"1")
    with (
        pytest.raises(errors.GenerationFenced),
        txbroker.connect(shared_broker.address) as other,
        txbroker.atomic(database, broker) as tx,
    ):
        assert tx.receive(topic, group=topic, timeout=5.0).value == b"1"
        with other.transaction() as theirs:
            assert theirs.receive(topic, group=topic, timeout=5.0).value == b"1"
        database.execute("INSERT INTO orders VALUES (1, 'billed')")
    assert tx.outcome is State.ROLLED_BACK
    assert numbers(database) == []
    with txbroker.atomic(database, broker) as tx:  # it claims anew, and goes on where the other one has got
        assert tx.receive(topic, group=topic, timeout=0.3) is None


# -- what it refuses -------------------------------------------------------------------------------


def test_a_commit_inside_of_the_block_is_found_before_anything_is_prepared(database, broker, topic):
    expected = pytest.raises(errors.Misuse, match=r"committed it.*stays.*none of the block's messages")
    with expected, txbroker.atomic(database, broker) as tx:
        database.execute("INSERT INTO orders VALUES (1, 'kept')")
        tx.send(topic, b"1")
        database.commit()
        database.execute("INSERT INTO orders VALUES (2, 'taken back')")
    assert numbers(database) == [1]
    assert values(broker, topic) == []
    assert rows(database) == []
    assert tx.outcome is State.ROLLED_BACK


def test_a_rollback_inside_of_the_block_is_found(database, broker, topic):
    with pytest.raises(errors.Misuse, match="rolled it back"), txbroker.atomic(database, broker) as tx:
        database.execute("INSERT INTO orders VALUES (1, 'x')")
        tx.send(topic, b"1")
        database.rollback()
    assert (numbers(database), values(broker, topic)) == ([], [])


def test_a_script_that_commits_by_itself_is_found(database, broker, topic):
    with pytest.raises(errors.Misuse, match="no such savepoint"), txbroker.atomic(database, broker) as tx:
        tx.send(topic, b"1")
        database.executescript("INSERT INTO orders VALUES (1, 'kept');")
    assert values(broker, topic) == []


def test_savepoints_of_the_programs_own_do_not_matter(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit") as tx:
        database.execute("SAVEPOINT mine")
        database.execute("INSERT INTO orders VALUES (1, 'x')")
        database.execute("ROLLBACK TO mine")
        database.execute("SAVEPOINT left_open")
        database.execute("INSERT INTO orders VALUES (2, 'x')")
        tx.send(topic, b"2")
    assert (numbers(database), values(broker, topic)) == ([2], [b"2"])


def test_a_block_inside_a_block_is_refused_and_the_outer_one_goes_on(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit") as tx:
        tx.send(topic, b"1")
        with pytest.raises(errors.Misuse, match="in a block already"):
            txbroker.atomic(database, broker).__enter__()
    assert values(broker, topic) == [b"1"]
    with txbroker.atomic(database, broker):
        pass


def test_a_connection_in_a_transaction_is_joined(database, broker, topic):
    database.execute("INSERT INTO orders VALUES (1, 'before')")
    with txbroker.atomic(database, broker, wait="commit") as tx:
        tx.send(topic, b"1")
    assert numbers(database) == [1]
    database.execute("INSERT INTO orders VALUES (2, 'before')")
    with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker) as tx:
        tx.send(topic, b"2")
        _ = 1 / 0
    assert numbers(database) == [1]


def test_autocommit_is_refused_unless_a_transaction_is_open(sqlite, database, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite, isolation_level=None)) as by_itself:
        with pytest.raises(errors.Misuse, match="autocommit"), txbroker.atomic(by_itself, broker):
            raise AssertionError("the block was entered")
        by_itself.execute("BEGIN")
        with txbroker.atomic(by_itself, broker, wait="commit") as tx:
            tx.send(topic, b"1")
    assert values(broker, topic) == [b"1"]


@pytest.mark.parametrize("pragma", ["synchronous = NORMAL", "synchronous = OFF", "journal_mode = MEMORY"])
def test_settings_that_could_lose_the_decision_are_refused(database, broker, pragma):
    database.execute(f"PRAGMA {pragma}")
    with pytest.raises(errors.DecisionNotDurable, match="PRAGMA synchronous = FULL"):
        txbroker.atomic(database, broker).__enter__()
    assert not database.in_transaction


def test_a_database_in_memory_is_refused(broker):
    refused = pytest.raises(errors.DecisionNotDurable, match="in memory")
    with contextlib.closing(sqlite3.connect(":memory:")) as database, refused:
        txbroker.atomic(database, broker).__enter__()


def test_a_missing_table_is_named_with_what_makes_it(sqlite, broker):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        with pytest.raises(errors.DecisionTableMissing, match="create_decision_table"):
            txbroker.atomic(database, broker).__enter__()
        assert not database.in_transaction


def test_a_table_of_another_layout_is_refused(database, broker):
    database.execute("UPDATE txbroker_identity SET identity = '9 whatever'")
    database.commit()
    with pytest.raises(errors.DecisionTableRefused, match=r"'9 whatever'.*layout 1"):
        txbroker.atomic(database, broker).__enter__()
    with pytest.raises(errors.DecisionTableRefused):
        txbroker.create_decision_table(database)


def test_a_copied_database_decides_nothing_until_a_person_has_said_which_it_is(
    sqlite, database, broker, topic
):
    shutil.copy(sqlite, sqlite.with_name("copy"))
    with contextlib.closing(sqlite3.connect(sqlite.with_name("copy"))) as copy:
        with pytest.raises(
            errors.DecisionTableRefused, match=r"is a copy.*--adopt replacement.*--adopt separate"
        ):
            txbroker.atomic(copy, broker).__enter__()
        with pytest.raises(errors.DecisionTableRefused):
            txbroker.create_decision_table(copy)
        copied = txbroker.Resolver(lambda: sqlite3.connect(sqlite.with_name("copy")), broker)
        with copied as resolver, pytest.raises(errors.DecisionTableRefused):
            resolver.resolve()
        original = txbroker.create_decision_table(database)
        assert txbroker.create_decision_table(copy, adopt="separate") != original
        with txbroker.atomic(copy, broker, wait="commit") as tx:
            tx.send(topic, b"1")
    assert values(broker, topic) == [b"1"]


def test_a_copy_that_replaces_the_original_keeps_its_identity(sqlite, database, broker):
    shutil.copy(sqlite, sqlite.with_name("copy"))
    with contextlib.closing(sqlite3.connect(sqlite.with_name("copy"))) as copy:
        original = txbroker.create_decision_table(database)
        assert txbroker.create_decision_table(copy, adopt="replacement") == original
        txbroker.atomic(copy, broker)
        assert txbroker.create_decision_table(copy) == original


def test_making_the_table_twice_changes_nothing_and_not_inside_of_a_transaction(database):
    identity = txbroker.create_decision_table(database)
    assert txbroker.create_decision_table(database) == identity
    database.execute("INSERT INTO orders VALUES (1, 'x')")
    with pytest.raises(errors.Misuse, match="a transaction is open"):
        txbroker.create_decision_table(database)
    database.rollback()
    with pytest.raises(errors.Misuse, match="'replacement' and 'separate'"):
        txbroker.create_decision_table(database, adopt="yes")


def test_a_table_whose_maker_died_half_way_is_finished(sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        txbroker.create_decision_table(database)
        database.execute("DROP TABLE txbroker_identity")
        database.commit()
        assert len(txbroker.create_decision_table(database)) == 16


@pytest.mark.parametrize("nothing", [None, 7, "sqlite:///x"])
def test_what_is_no_connection_is_refused(broker, nothing):
    with pytest.raises(errors.Misuse, match="no database connection"):
        txbroker.atomic(nothing, broker)


def test_a_cursor_is_no_connection(database, broker):
    with pytest.raises(
        errors.Misuse, match=r"^sqlite3\.Cursor is no connection: .*a cursor has it as \.connection"
    ):
        txbroker.atomic(database.cursor(), broker)


def test_what_is_no_broker_is_refused(database):
    with pytest.raises(errors.Misuse, match="no blocking connection to a broker"):
        txbroker.atomic(database, "tcp:127.0.0.1:7654")


def test_names_and_choices_have_bounds(database, broker):
    with pytest.raises(errors.InvalidName, match="at most 20"):
        txbroker.atomic(database, broker, application="x" * 21)
    with pytest.raises(errors.InvalidName):
        txbroker.atomic(database, broker, application="a b")
    with pytest.raises(errors.Misuse, match="'decision' and 'commit'"):
        txbroker.atomic(database, broker, wait="forever")
    with txbroker.atomic(database, broker, application="x" * 20) as tx:
        assert tx.xid.check().global_id.endswith(b"x" * 20)


def test_nothing_works_outside_of_the_block(database, broker, topic):
    tx = txbroker.atomic(database, broker)
    with pytest.raises(errors.Misuse, match="inside of the block"):
        tx.send(topic, b"1")
    with tx:
        pass
    with pytest.raises(errors.Misuse, match="inside of the block"):
        tx.receive(topic, group="g")


def test_a_busy_database_refuses_the_block_before_any_work(sqlite, database, broker):
    with (
        contextlib.closing(sqlite3.connect(sqlite)) as other,
        contextlib.closing(sqlite3.connect(sqlite, timeout=0.05)) as impatient,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            txbroker.atomic(impatient, broker).__enter__()
        other.rollback()
        with txbroker.atomic(impatient, broker):
            pass


def test_threads_share_a_broker_connection_with_a_database_connection_each(sqlite, database, broker, topic):
    failures = []

    def work(start):
        try:
            with contextlib.closing(sqlite3.connect(sqlite, timeout=30.0)) as mine:
                for number in range(start, start + 10):
                    with txbroker.atomic(mine, broker) as tx:
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
