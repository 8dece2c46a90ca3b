"""``carry``: what ``session.commit()`` commits, messages and all, on real databases."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import txbroker
from tests.databases.orm import SHOPS, Line, Order, engine_url, eventually, make_shop, numbers, values
from tests.databases.test_sqlalchemy import DIES_AT_COMMIT
from txbroker import State, errors
from txbroker.databases import deciding
from txbroker.databases.adapter import run
from txbroker.databases.blocking import BlockingSide
from txbroker.databases.sqlalchemy import carry
from txbroker.databases.sqlalchemy.adapters import SessionDatabase

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def engine(postgresql):
    engine = make_shop(postgresql.sqlalchemy_url)
    yield engine
    engine.dispose()


@pytest.fixture(params=SHOPS)
def any_engine(request):
    engine = make_shop(engine_url(request, request.param))
    yield engine
    engine.dispose()


@pytest.fixture
def nothing_left():
    yield
    gc.collect()
    assert deciding._in_block == {}


def carrying(engine, broker, **choices):
    factory = sessionmaker(engine)
    return factory, carry(factory, broker, wait="commit", **choices)


# -- what it promises ------------------------------------------------------------------------------


def test_commit_carries_the_messages_and_rollback_drops_them(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1", key=b"k", headers={"h": b"v"})
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
    assert (first.key, first.headers) == (b"k", {"h": b"v"})


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


# -- when something fails --------------------------------------------------------------------------


def test_a_commit_that_the_database_refuses_leaves_no_message(engine, broker, topic, nothing_left):
    factory, messages = carrying(engine, broker)
    with factory() as session:
        session.add(Line(number=1, of_order=99))
        messages.send(session, topic, b"1")
        with pytest.raises(IntegrityError) as caught:
            session.commit()
        assert "neither rows nor messages" in caught.value.__notes__[-1]
        session.rollback()
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        session.commit()
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])
    assert broker.transactions([State.PREPARED]) == []


def test_a_message_that_the_broker_refuses_leaves_no_row(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with pytest.raises(errors.UnknownTopic) as caught, factory.begin() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
        messages.send(session, "no-such-topic", b"1")
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_a_broker_that_is_gone_leaves_no_row(engine, mortal_broker, nothing_left):
    with txbroker.connect(mortal_broker.address, timeout=1.0) as broker:
        broker.create_topic("t")
        factory, messages = carrying(engine, broker)
        with factory() as session:
            session.add(Order(number=1))
            messages.send(session, "t", b"1")
            mortal_broker.kill()
            with pytest.raises(errors.TxBrokerError):
                session.commit()
        assert numbers(engine) == []


def test_a_database_that_dies_in_commit_is_an_unknown_outcome(engine, broker, topic, nothing_left):
    with engine.begin() as connection:
        for statement in DIES_AT_COMMIT:
            connection.execute(text(statement))
    factory, messages = carrying(engine, broker)
    with pytest.raises(errors.OutcomeUnknown) as caught, factory.begin() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
    assert broker.wait_outcome(caught.value.xid, 20.0) is State.ROLLED_BACK
    assert (numbers(engine), values(broker, topic)) == ([], [])


def invalidated(session):
    session.invalidate()


def invalidated_below(session):
    session.connection().invalidate()
    session.rollback()


def closed_below(session):
    session.connection().close()
    session.close()


def detached(session):
    session.connection().detach()
    session.close()


def lost(session):
    pid = session.connection().connection.driver_connection.info.backend_pid
    with session.get_bind().begin() as operator:
        operator.execute(text(f"SELECT pg_terminate_backend({pid}, 10000)"))
    with pytest.raises(OperationalError):
        session.execute(text("SELECT 1"))
    session.rollback()


def lost_unseen(session):
    session.connection().connection.driver_connection.close()
    with pytest.raises(OperationalError):
        session.close()


@pytest.mark.parametrize("ends", [invalidated, invalidated_below, closed_below, detached, lost, lost_unseen])
def test_a_lost_connection_drops_its_messages(engine, broker, topic, nothing_left, ends):
    factory, messages = carrying(engine, broker)
    session = factory()
    session.add(Order(number=1))
    session.flush()
    messages.send(session, topic, b"1")
    ends(session)
    assert deciding._in_block == {}
    with factory() as session:
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        session.commit()
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])


def test_nobody_goes_on_with_a_connection_whose_outcome_is_unknown(
    engine, broker, topic, nothing_left, monkeypatch
):
    """Somebody has ended the transaction after the prepare: what the connection is in then is anybody's guess."""
    factory, messages = carrying(engine, broker)
    prepare = BlockingSide.prepare
    with factory() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
        driver = session.connection().connection.driver_connection

        async def prepare_and_be_ended(side):
            await prepare(side)
            driver.rollback()

        monkeypatch.setattr(BlockingSide, "prepare", prepare_and_be_ended)
        with pytest.raises(errors.OutcomeUnknown) as caught:
            session.commit()
        monkeypatch.undo()
        assert driver.closed
        session.rollback()
        session.add(Order(number=2))
        session.commit()
    assert broker.wait_outcome(caught.value.xid, 20.0) is State.ROLLED_BACK
    assert (numbers(engine), values(broker, topic)) == ([2], [])


def test_a_commit_past_sqlalchemy_is_found(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory() as session:
        messages.send(session, topic, b"1")
        session.execute(insert(Order), {"number": 1, "state": "kept"})
        session.connection().connection.dbapi_connection.commit()
        session.execute(insert(Order), {"number": 2, "state": "taken back"})
        with pytest.raises(errors.Misuse, match="is gone"):
            session.commit()
    assert (numbers(any_engine), values(broker, topic)) == ([1], [])


@pytest.mark.parametrize(
    "moment", ["before prepare", "after prepare", "after commit", "after the broker's commit"]
)
def test_a_program_that_is_killed_leaves_both_or_neither(any_engine, shared_broker, broker, topic, moment):
    url = any_engine.url.render_as_string(hide_password=False)
    died = subprocess.run(
        [sys.executable, "-m", "tests.databases.orm_program", url, shared_broker.address, topic, moment],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60.0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    in_doubt = moment in ("after prepare", "after commit")
    with any_engine.connect() as connection:
        connector = SessionDatabase(Session(connection))
        run(connector.open())
        opens = connector.connector()
    with txbroker.Resolver(opens, broker) as resolver:
        done = []

        def resolved():
            found = resolver.resolve()
            done.extend([*found.committed, *found.rolled_back])
            return not found.waiting and bool(done) is in_doubt

        eventually(resolved)  # the database may not have noticed the death yet
    there = moment in ("after commit", "after the broker's commit")
    assert numbers(any_engine) == ([7] if there else [])
    assert values(broker, topic) == ([b"7"] if there else [])


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
    with factory() as session, txbroker.atomic(session, broker, wait="commit") as tx:
        tx.send(topic, b"1")
        with pytest.raises(errors.Misuse, match="in a block already"):
            messages.send(session, topic, b"2")
    assert values(broker, topic) == [b"1"]


def test_what_is_no_broker_and_no_session_is_refused(engine, broker):
    with pytest.raises(errors.Misuse, match="neither a blocking connection"):
        carry(sessionmaker(engine), "tcp:127.0.0.1:1")
    with pytest.raises(errors.Misuse, match="is no Session"):
        carrying(engine, broker)[1].send(engine, "t", b"1")


# -- threads and processes -------------------------------------------------------------------------


def test_threads_share_it_with_a_scoped_session(engine, broker, topic, nothing_left):
    scoped = scoped_session(sessionmaker(engine))
    messages = carry(scoped, lambda: broker, wait="commit")
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
