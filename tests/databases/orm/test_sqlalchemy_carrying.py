"""Test ``carry``: what ``session.commit()`` commits, with its messages, on real databases."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import os
import threading

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import txbroker
from tests.databases.orm.orm import Line, Order, carrying, make_shop, numbers
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.databases.sqlalchemy import carry

pytestmark = pytest.mark.slow


# -- what it promises ------------------------------------------------------------------------------


def test_commit_carries_the_messages_and_rollback_drops_them(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1", key=b"k", headers={"h": b"v"}, id="order-1")
        assert [message.value for message in messages.waiting(session)] == [b"1"]
        assert values(broker, topic) == []
        session.commit()
        assert messages.waiting(session) == []
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        session.rollback()
        session.add(Order(number=3))
        messages.send(session, topic, b"3")
        session.commit()
        messages.send(session, topic, b"4")  # closed without a commit
    assert (numbers(any_engine), values(broker, topic)) == ([1, 3], [b"1", b"3"])
    first = broker.read(topic, 0, 0)[0]
    assert (first.key, first.header("h"), first.id) == (b"k", b"v", b"order-1")


def test_begin_blocks_and_connection_commits_carry_too(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory.begin() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
    with factory() as session, session.begin():
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
    with pytest.raises(ZeroDivisionError), factory.begin() as session:
        session.add(Order(number=3))
        messages.send(session, topic, b"3")
        _ = 1 / 0
    with any_engine.connect() as connection, factory(bind=connection) as session:
        connection.begin()
        session.add(Order(number=4))
        messages.send(session, topic, b"4")
        session.commit()  # joined: it is the Connection's to commit
        assert values(broker, topic) == [b"1", b"2"]
        connection.commit()
    assert (numbers(any_engine), values(broker, topic)) == ([1, 2, 4], [b"1", b"2", b"4"])


def test_a_transaction_without_messages_is_not_touched(engine, broker, topic, nothing_left):
    factory, _ = carrying(engine, broker)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE txbroker_identity"))
    with factory.begin() as session:
        session.add(Order(number=1))
    assert numbers(engine) == [1]


def test_what_was_sent_in_a_savepoint_goes_with_it(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory.begin() as session:
        messages.send(session, topic, b"a")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            session.add(Order(number=1))
            messages.send(session, topic, b"dropped")
            _ = 1 / 0
        with session.begin_nested():
            session.add(Order(number=2))
            messages.send(session, topic, b"b")
            inner = session.begin_nested()
            session.add(Order(number=3))
            messages.send(session, topic, b"dropped")
            inner.rollback()
            with session.begin_nested():
                messages.send(session, topic, b"c")
        outer = session.begin_nested()
        with session.begin_nested():
            messages.send(session, topic, b"dropped, though its own savepoint was released")
        outer.rollback()
        messages.send(session, topic, b"d")
    assert (numbers(any_engine), values(broker, topic)) == ([2], [b"a", b"b", b"c", b"d"])


def test_the_first_message_may_be_sent_in_a_savepoint(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory.begin() as session:
        with session.begin_nested():
            session.add(Order(number=1))
            messages.send(session, topic, b"1")
    with factory.begin() as session:
        nested = session.begin_nested()
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        nested.rollback()
        session.add(Order(number=3))
    with factory() as session:  # a savepoint of the Connection's
        nested = session.connection().begin_nested()
        messages.send(session, topic, b"4")
        nested.rollback()
        session.add(Order(number=5))
        messages.send(session, topic, b"5")
        session.begin_nested()
        messages.send(session, topic, b"6")
        session.commit()  # which releases what is still open
    assert (numbers(any_engine), values(broker, topic)) == ([1, 3, 5], [b"1", b"5", b"6"])


def test_the_release_of_a_savepoint_commits_nothing(any_engine, broker, topic, nothing_left):
    """As it would in SQLite, whose driver begins late."""
    factory, messages = carrying(any_engine, broker)
    with factory() as session:
        with session.begin_nested():
            session.add(Order(number=1))
            messages.send(session, topic, b"1")
        session.rollback()
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_a_session_in_a_savepoint_of_its_connections_drops_with_it(engine, broker, topic, nothing_left):
    """As test suites do it that roll everything back."""
    factory, messages = carrying(engine, broker)
    with engine.connect() as connection:
        outer = connection.begin()
        for ends in ("commit", "rollback"):
            with factory(bind=connection, join_transaction_mode="create_savepoint") as session:
                session.add(Order(number=1))
                messages.send(session, topic, ends.encode())
                getattr(session, ends)()
        with factory(bind=connection) as session:
            session.connection()
            assert [message.value for message in messages.waiting(session)] == [b"commit"]
        outer.rollback()
    assert (numbers(engine), values(broker, topic)) == ([], [])


def test_what_listeners_of_the_flush_and_of_before_commit_send_is_carried(
    engine, broker, topic, nothing_left
):
    factory, messages = carrying(engine, broker)

    @event.listens_for(factory, "before_commit")
    def before_commit(session):
        messages.send(session, topic, b"before_commit")

    @event.listens_for(factory, "after_flush")
    def after_flush(session, context):
        messages.send(session, topic, b"after_flush")

    with factory() as session:
        session.add(Order(number=1))
        session.commit()
    assert values(broker, topic) == [b"before_commit", b"after_flush"]


# -- what it refuses -------------------------------------------------------------------------------


def test_messages_wait_within_a_bound(engine, broker, topic, nothing_left):
    factory, messages = carrying(engine, broker, max_bytes=100)
    with factory() as session:
        session.add(Order(number=1))
        nested = session.begin_nested()
        messages.send(session, topic, b"x" * 99)
        with pytest.raises(errors.BufferFull, match=r"101 bytes.*100 are allowed"):
            messages.send(session, topic, b"xx")
        nested.rollback()
        messages.send(session, topic, b"y" * 100)
        session.commit()
    assert values(broker, topic) == [b"y" * 100]


def test_sessions_whose_commit_cannot_carry_are_refused(engine, broker, topic, tmp_path, nothing_left):
    factory, messages = carrying(engine, broker)
    with factory(twophase=True) as session, pytest.raises(errors.Misuse, match="two-phase"):
        messages.send(session, topic, b"1")
    with factory(bind=engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(errors.Misuse, match="autocommit"):
            messages.send(session, topic, b"1")
    other = make_shop(f"sqlite:///{tmp_path / 'other.sqlite'}")
    with Session(other) as session, pytest.raises(errors.Misuse, match="not one of those that carry"):
        messages.send(session, topic, b"1")
    with factory(binds={Line: other}) as session:
        messages.send(session, topic, b"1")
        with pytest.raises(errors.Misuse, match="more than one database"):
            session.add(Line(number=1, of_order=1))
            session.flush()
    with factory(binds={Line: other}) as session:
        session.add(Line(number=1, of_order=1))
        session.flush()
        with pytest.raises(errors.Misuse, match="more than one database"):
            messages.send(session, topic, b"1")
    other.dispose()
    assert values(broker, topic) == []


def test_a_block_of_atomic_and_carried_messages_do_not_mix(engine, broker, topic, nothing_left):
    factory, messages = carrying(engine, broker)
    with factory() as session, txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
        tx.send(topic, b"1")
        with pytest.raises(errors.Misuse, match="in a block already"):
            messages.send(session, topic, b"2")
    assert values(broker, topic) == [b"1"]


def test_what_is_no_broker_and_no_session_is_refused(engine, broker):
    with pytest.raises(errors.Misuse, match="neither a blocking connection"):
        carry(sessionmaker(engine), "tcp:127.0.0.1:1", mode="two-phase")
    with pytest.raises(errors.Misuse, match="is no Session"):
        carrying(engine, broker)[1].send(engine, "t", b"1")


# -- threads and processes -------------------------------------------------------------------------


def test_threads_share_it_with_a_scoped_session(engine, broker, topic, nothing_left):
    scoped = scoped_session(sessionmaker(engine))
    messages = carry(scoped, lambda: broker, wait="commit", mode="two-phase")
    failures = []

    def work(start):
        try:
            for number in range(start, start + 10):
                scoped.add(Order(number=number))
                messages.send(scoped, topic, b"%d" % number)
                (scoped.commit if number % 2 else scoped.rollback)()
            scoped.remove()
        except Exception as error:  # noqa: BLE001 - the assertion below shows it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(map(int, values(broker, topic))) == numbers(engine)
    assert len(numbers(engine)) == 15
    eventually(lambda: broker.resolver.status.unacknowledged == 0)


def test_a_forked_process_is_told_to_open_a_connection_of_its_own(engine, broker, topic):
    factory, messages = carrying(engine, broker)
    with factory.begin() as session:
        messages.send(session, topic, b"parent")
    engine.dispose()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        said = "nothing"
        try:
            with factory.begin() as session:
                messages.send(session, topic, b"child")
        except errors.ProcessForked as error:
            said = f"refused: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read().startswith("refused: ")
    os.waitpid(child, 0)
    assert values(broker, topic) == [b"parent"]


def test_what_is_sent_is_looked_at_and_copied_where_it_is_sent(engine, broker, topic, nothing_left):
    """It goes out with the commit: refused only there, it would end a transaction that has done all its work."""
    factory, messages = carrying(engine, broker)
    value = bytearray(b"value")
    with factory.begin() as session:
        for wrong in ({"value": "text"}, {"key": 5}, {"headers": [("a", "b")]}, {"partition": "0"}):
            with pytest.raises(errors.WrongType):
                messages.send(session, topic, **({"value": b"x"} | wrong))
        messages.send(session, topic, value)
        value[:] = b"other"
    assert values(broker, topic) == [b"value"]


# -- through the outbox ----------------------------------------------------------------------------


def rows_left(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT COUNT(*) FROM txbroker_outbox")).scalar_one()


def test_messages_may_travel_in_the_database(any_engine, broker, topic, nothing_left):
    factory = sessionmaker(any_engine)
    messages = carry(factory, broker, wait="commit", mode="outbox", max_backlog=txbroker.Backlog(rows=100))
    for number in range(3):
        with factory.begin() as session:
            session.add(Order(number=number))
            messages.send(session, topic, b"%d" % number)
            with session.begin_nested() as nested:
                messages.send(session, topic, b"dropped")
                nested.rollback()
    with factory() as session:
        session.add(Order(number=9))
        messages.send(session, topic, b"9")
        session.rollback()
    assert (numbers(any_engine), values(broker, topic)) == ([0, 1, 2], [b"0", b"1", b"2"])
    assert broker.transactions() == []
    eventually(lambda: rows_left(any_engine) == 0)


def test_what_does_not_fit_into_the_outbox_is_rolled_back_or_goes_in_two_phases(
    any_engine, broker, topic, nothing_left
):
    for mode in ("outbox", "auto"):
        factory = sessionmaker(any_engine)
        messages = carry(factory, broker, wait="commit", mode=mode, outbox_bytes=10)
        with factory() as session:
            session.add(Order(number=len(mode)))
            messages.send(session, topic, b"more than ten")
            if mode == "outbox":
                with pytest.raises(errors.Misuse, match="outbox_bytes = 10"):
                    session.commit()
                session.rollback()
            else:
                session.commit()
    assert (numbers(any_engine), values(broker, topic)) == ([len("auto")], [b"more than ten"])


def test_a_backlog_that_is_full_refuses_the_commit(any_engine, mortal_broker):
    with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
        broker.create_topic("orders")
        factory = sessionmaker(any_engine)
        messages = carry(factory, broker, mode="outbox", max_backlog=txbroker.Backlog(rows=1))
        with factory.begin() as session:
            session.add(Order(number=0))
            messages.send(session, "orders", b"0")
        eventually(lambda: values(broker, "orders") == [b"0"])
        eventually(lambda: broker.resolver.status.undelivered == 0)
        mortal_broker.kill()
        with factory.begin() as session:
            session.add(Order(number=1))
            messages.send(session, "orders", b"1")
        with factory() as session:
            session.add(Order(number=2))
            messages.send(session, "orders", b"2")
            with pytest.raises(errors.BacklogFull):
                session.commit()
            session.rollback()
        assert numbers(any_engine) == [0, 1]
        mortal_broker.start()
        eventually(lambda: values(broker, "orders") == [b"0", b"1"])


@pytest.mark.parametrize(
    "choices",
    [
        {"mode": "both"},
        {"outbox_bytes": 0},
        {"max_backlog": {"rows": 1}},
        {"max_backlog": txbroker.Backlog(rows=-1)},
        {"max_backlog": txbroker.Backlog(bytes="1")},
        {"max_backlog": txbroker.Backlog(age="1 s")},
        {"on_refused": "drop"},
    ],
)
def test_impossible_arguments_about_the_outbox_are_refused(broker, choices):
    with pytest.raises(errors.Misuse, match="nothing was done"):
        carry(sessionmaker(), broker, **choices)
