"""Test what ``txbroker.atomic`` refuses on sqlite3, and its errors."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import shutil
import sqlite3
import sys

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import txbroker
from journal.arguments import checked_xid
from tests.databases.adapters.lite_scene import numbers, rows, shop
from tests.databases.topic_content import values
from txbroker import State, errors

pytestmark = pytest.mark.slow


@pytest.fixture
def database(sqlite):
    with shop(sqlite) as connection:
        yield connection


def test_a_commit_inside_of_the_block_is_found_before_anything_is_prepared(database, broker, topic):
    expected = pytest.raises(errors.Misuse, match=r"committed it.*stays.*none of the block's messages")
    with expected, txbroker.atomic(database, broker, mode="two-phase") as tx:
        database.execute("INSERT INTO orders VALUES (1, 'kept')")
        tx.send(topic, b"1")
        database.commit()
        database.execute("INSERT INTO orders VALUES (2, 'taken back')")
    assert numbers(database) == [1]
    assert values(broker, topic) == []
    assert rows(database) == []
    assert tx.outcome is State.ROLLED_BACK


def test_a_rollback_inside_of_the_block_is_found(database, broker, topic):
    with (
        pytest.raises(errors.Misuse, match="rolled it back"),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        database.execute("INSERT INTO orders VALUES (1, 'x')")
        tx.send(topic, b"1")
        database.rollback()
    assert (numbers(database), values(broker, topic)) == ([], [])


def test_a_script_that_commits_by_itself_is_found(database, broker, topic):
    with (
        pytest.raises(errors.Misuse, match="no such savepoint"),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        tx.send(topic, b"1")
        database.executescript("INSERT INTO orders VALUES (1, 'kept');")
    assert values(broker, topic) == []


def test_savepoints_of_the_programs_own_do_not_matter(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        database.execute("SAVEPOINT mine")
        database.execute("INSERT INTO orders VALUES (1, 'x')")
        database.execute("ROLLBACK TO mine")
        database.execute("SAVEPOINT left_open")
        database.execute("INSERT INTO orders VALUES (2, 'x')")
        tx.send(topic, b"2")
    assert (numbers(database), values(broker, topic)) == ([2], [b"2"])


def test_a_block_inside_a_block_is_refused_and_the_outer_one_goes_on(database, broker, topic):
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        tx.send(topic, b"1")
        with pytest.raises(errors.Misuse, match="in a block already"):
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
    assert values(broker, topic) == [b"1"]
    with txbroker.atomic(database, broker, mode="two-phase"):
        pass


def test_a_connection_in_a_transaction_is_joined(database, broker, topic):
    database.execute("INSERT INTO orders VALUES (1, 'before')")
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        tx.send(topic, b"1")
    assert numbers(database) == [1]
    database.execute("INSERT INTO orders VALUES (2, 'before')")
    with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker, mode="two-phase") as tx:
        tx.send(topic, b"2")
        _ = 1 / 0
    assert numbers(database) == [1]


def test_autocommit_is_refused_unless_a_transaction_is_open(sqlite, database, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite, isolation_level=None)) as by_itself:
        with (
            pytest.raises(errors.Misuse, match="autocommit"),
            txbroker.atomic(by_itself, broker, mode="two-phase"),
        ):
            raise AssertionError("the block was entered")
        by_itself.execute("BEGIN")
        with txbroker.atomic(by_itself, broker, wait="commit", mode="two-phase") as tx:
            tx.send(topic, b"1")
    assert values(broker, topic) == [b"1"]


@pytest.mark.parametrize("pragma", ["synchronous = NORMAL", "synchronous = OFF", "journal_mode = MEMORY"])
def test_settings_that_could_lose_the_decision_are_refused(database, broker, pragma):
    database.execute(f"PRAGMA {pragma}")
    with pytest.raises(errors.DecisionNotDurable, match="PRAGMA synchronous = FULL"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()
    assert not database.in_transaction


def test_a_database_in_memory_is_refused(broker):
    refused = pytest.raises(errors.DecisionNotDurable, match="in memory")
    with contextlib.closing(sqlite3.connect(":memory:")) as database, refused:
        txbroker.atomic(database, broker, mode="two-phase").__enter__()


def test_a_missing_table_is_named_with_what_makes_it(sqlite, broker):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        with pytest.raises(errors.DecisionTableMissing, match="create_decision_table"):
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
        assert not database.in_transaction


def test_a_table_of_another_layout_is_refused(database, broker):
    database.execute("UPDATE txbroker_identity SET identity = '9 whatever'")
    database.commit()
    with pytest.raises(errors.DecisionTableRefused, match=r"'9 whatever'.*layout 2"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()
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
            txbroker.atomic(copy, broker, mode="two-phase").__enter__()
        with pytest.raises(errors.DecisionTableRefused):
            txbroker.create_decision_table(copy)
        copied = txbroker.Resolver(lambda: sqlite3.connect(sqlite.with_name("copy")), broker)
        with copied as resolver, pytest.raises(errors.DecisionTableRefused):
            resolver.resolve()
        original = txbroker.create_decision_table(database)
        assert txbroker.create_decision_table(copy, adopt="separate") != original
        with txbroker.atomic(copy, broker, wait="commit", mode="two-phase") as tx:
            tx.send(topic, b"1")
    assert values(broker, topic) == [b"1"]


def test_a_copy_that_replaces_the_original_keeps_its_identity(sqlite, database, broker):
    shutil.copy(sqlite, sqlite.with_name("copy"))
    with contextlib.closing(sqlite3.connect(sqlite.with_name("copy"))) as copy:
        original = txbroker.create_decision_table(database)
        assert txbroker.create_decision_table(copy, adopt="replacement") == original
        txbroker.atomic(copy, broker, mode="two-phase")
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
        txbroker.atomic(nothing, broker, mode="two-phase")


def test_a_cursor_is_no_connection(database, broker):
    with pytest.raises(
        errors.Misuse, match=r"^sqlite3\.Cursor is no connection: .*a cursor has it as \.connection"
    ):
        txbroker.atomic(database.cursor(), broker, mode="two-phase")


def test_what_is_no_broker_is_refused(database):
    with pytest.raises(errors.Misuse, match="no blocking connection to a broker"):
        txbroker.atomic(database, "tcp:127.0.0.1:7654", mode="two-phase")


def test_names_and_choices_have_bounds(database, broker):
    with pytest.raises(errors.InvalidName, match="at most 20"):
        txbroker.atomic(database, broker, application="x" * 21, mode="two-phase")
    with pytest.raises(errors.InvalidName):
        txbroker.atomic(database, broker, application="a b", mode="two-phase")
    with pytest.raises(
        errors.WrongValue, match=r"^wait is 'forever'.*'decision' or 'commit'; nothing was done$"
    ):
        txbroker.atomic(database, broker, wait="forever", mode="two-phase")
    with txbroker.atomic(database, broker, application="x" * 20, mode="two-phase") as tx:
        assert checked_xid(tx.xid).global_id.endswith(b"x" * 20)


@pytest.mark.parametrize(
    ("name", "wrongs"),
    [
        ("application", (5, b"a", None)),
        ("wait", (5, None, ["commit"])),
        ("timeout", ("5", True, -1.0, float("nan"))),
        ("connect_database", ("sqlite:///x", 5)),
    ],
)
def test_what_the_block_does_not_take_is_named(database, broker, name, wrongs):
    for wrong in wrongs:
        with pytest.raises((errors.WrongType, errors.WrongValue), match=rf"^{name} is .*; nothing was done$"):
            txbroker.atomic(database, broker, **{name: wrong}, mode="two-phase")


def test_what_a_block_sends_is_looked_at_when_it_is_sent(database, broker, topic):
    with txbroker.atomic(database, broker, mode="two-phase") as tx:
        for wrong in (
            {"value": "text"},
            {"value": b"x", "key": 5},
            {"value": b"x", "headers": [("a", "b")]},
        ):
            with pytest.raises(errors.WrongType):
                tx.send(topic, **wrong)
        with pytest.raises(errors.WrongValue, match="seconds"):
            tx.send(topic, b"x", timestamp=1_767_268_800)
        tx.send(topic, b"1")
    assert [message.value for message in broker.read(topic, 0, 0)] == [b"1"]


def test_nothing_works_outside_of_the_block(database, broker, topic):
    tx = txbroker.atomic(database, broker, mode="two-phase")
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
            txbroker.atomic(impatient, broker, mode="two-phase").__enter__()
        other.rollback()
        with txbroker.atomic(impatient, broker, mode="two-phase"):
            pass


def test_a_session_that_is_refused_before_it_has_a_connection_says_why_and_the_block_around_goes_on(
    database, broker, topic
):
    refused = Session(create_engine("sqlite://"), twophase=True)
    for _ in range(2):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders (number) SELECT count(*) FROM orders")
            tx.send(topic, b"1")
            with (
                pytest.raises(errors.Misuse, match="two-phase") as told,
                txbroker.atomic(refused, broker, mode="two-phase"),
            ):
                raise AssertionError
        # Mostly None. An exception that a test of interrupts has raised amid the end of a handler stays its thread's
        # current one for good, with CPython 3.11, and so the context of all that come later.
        assert told.value.__context__ is sys.exception(), "nothing failed while it was ended"
        assert tx.outcome is State.COMMITTED
    assert (numbers(database), values(broker, topic)) == ([0, 1], [b"1", b"1"])
