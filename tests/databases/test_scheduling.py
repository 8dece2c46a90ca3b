"""Test messages for later in blocks: the due time is that of the call in every mode, and cancels go with the rows."""

import inspect
import sqlite3
import time
from contextlib import nullcontext
from datetime import timedelta

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

import txbroker
from journal.scheduled_id import ScheduledId
from journal.xid import Xid
from tests.databases.test_message_ids import SENDS
from tests.support.broker_process import BrokerProcess
from txbroker import errors
from txbroker.client import asyncio as asyncio_client
from txbroker.client import blocking
from txbroker.client import twisted as twisted_client
from txbroker.client.loop.kept_due import kept_due
from txbroker.client.loop.waiting import Waiting, taken_back
from txbroker.coordinator.joined_transaction import Messages as JoinedMessages
from txbroker.databases.asyncio import AsyncAtomic
from txbroker.databases.blocking import create_decision_table
from txbroker.databases.django.transaction_messages import cancel as django_cancel
from txbroker.databases.orm.waiting_messages import commit_with
from txbroker.databases.sqlalchemy import carry
from txbroker.databases.sqlalchemy.session_messages import Messages as SessionMessages
from txbroker.databases.twisted import ThreadTransaction

CLIENTS = [each for each in SENDS if not each.__module__.startswith("journal")]
CANCELS = [
    *(api.Connection.cancel for api in (blocking, asyncio_client, twisted_client)),
    *(api.Transaction.cancel for api in (blocking, asyncio_client, twisted_client)),
    *(
        each.cancel
        for each in (txbroker.Atomic, AsyncAtomic, ThreadTransaction, JoinedMessages, SessionMessages)
    ),
    django_cancel,
]


@pytest.mark.parametrize("send", CLIENTS, ids=lambda send: f"{send.__module__}.{send.__qualname__}")
def test_whatever_sends_takes_a_due_time_by_name(send):
    for name in ("after", "at"):
        parameter = inspect.signature(send).parameters[name]
        assert (parameter.default, parameter.kind) == (None, inspect.Parameter.KEYWORD_ONLY)


@pytest.mark.parametrize("cancel", CANCELS, ids=lambda call: f"{call.__module__}.{call.__qualname__}")
def test_whatever_takes_back_takes_an_id(cancel):
    parameters = inspect.signature(cancel).parameters
    assert [parameters[name].default for name in ("id", "message_id")] == [None, None]
    assert parameters["message_id"].kind == inspect.Parameter.KEYWORD_ONLY


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as connection:
        connection.create_topic("orders", exist_ok=True)
        yield connection


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "database", isolation_level="DEFERRED")
    create_decision_table(connection)
    connection.execute("CREATE TABLE orders (id)")
    connection.commit()
    yield connection
    connection.close()


def due_in(broker, name):
    [found] = [each for each in broker.list_scheduled("orders") if each.message_id == name.encode()]
    return found.due_in


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["outbox", "two-phase"])
def test_the_due_time_is_that_of_the_call_in_both_modes(broker, database, mode):
    with txbroker.atomic(database, broker, mode=mode, wait="commit") as tx:
        receipt = tx.send("orders", b"v", after=3600, id=f"{mode}-later")
        tx.send("orders", b"v", at=time.time_ns() // 1000 + 3_600_000_000, id=f"{mode}-at")
        assert (receipt.offset, receipt.scheduled) == (None, None)
        database.execute("INSERT INTO orders VALUES (1)")
        time.sleep(0.5)
        assert broker.list_scheduled("orders") == [] or mode == "two-phase"
    assert due_in(broker, f"{mode}-later") <= 3599.5
    assert due_in(broker, f"{mode}-at") <= 3599.5
    for what in ("later", "at"):
        broker.cancel(message_id=f"{mode}-{what}")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["outbox", "two-phase"])
def test_a_block_that_is_rolled_back_schedules_nothing(broker, database, mode):
    with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker, mode=mode) as tx:  # noqa: PT012 - the block is what raises
        tx.send("orders", b"v", after=3600, id="never")
        raise ZeroDivisionError
    with pytest.raises(errors.NotScheduled):
        broker.cancel(message_id="never")


@pytest.mark.slow
def test_what_lies_in_the_outbox_while_the_broker_is_down_keeps_its_due_time(tmp_path, database):
    with BrokerProcess(tmp_path / "data") as own, txbroker.connect(own.address, timeout=60.0) as broker:
        broker.create_topic("orders")
        broker.send("orders", b"first", after=0)  # so that the way into the schedule is known
        own.kill()
        with txbroker.atomic(database, broker, mode="outbox") as tx:
            tx.send("orders", b"v", after=3600, id="later")
        time.sleep(1.5)
        own.start()
        deadline = time.monotonic() + 30
        while not broker.list_scheduled("orders"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert due_in(broker, "later") <= 3598.5


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_taken_back_with_the_rows(broker, database, fails):
    waits = broker.send("orders", b"v", after=3600).scheduled
    with (
        pytest.raises(ZeroDivisionError) if fails else nullcontext(),
        txbroker.atomic(database, broker, wait="commit") as tx,
    ):
        tx.cancel(str(waits))
        database.execute("INSERT INTO orders VALUES (1)")
        if fails:
            raise ZeroDivisionError
    assert broker.scheduled(waits).state == ("waits" if fails else "cancelled")
    assert database.execute("SELECT count(*) FROM orders").fetchone() == (0 if fails else 1,)


@pytest.mark.slow
def test_all_messages_with_an_id_of_their_sender_are_taken_back_with_the_rows(broker, database):
    first, second = (broker.send("orders", b"v", after=3600, id="mine").scheduled for _ in range(2))
    with txbroker.atomic(database, broker, wait="commit") as tx:
        assert sorted(tx.cancel(message_id="mine")) == sorted([first, second])
        with pytest.raises(errors.NotScheduled, match="with the id 'another'"):
            tx.cancel(message_id="another")
        assert broker.scheduled(first).state == "waits"
    assert [broker.scheduled(each).state for each in (first, second)] == ["cancelled", "cancelled"]
    with (
        txbroker.atomic(database, broker) as tx,
        pytest.raises(errors.NotScheduled, match="taken back before"),
    ):
        tx.cancel(message_id="mine")


@pytest.mark.slow
@pytest.mark.parametrize(("end", "state"), [("tpc_commit", "cancelled"), ("tpc_rollback", "waits")])
def test_between_tpc_begin_and_its_end_a_message_is_taken_back_with_the_transaction(broker, end, state):
    waits = broker.send("orders", b"v", after=3600).scheduled
    broker.tpc_begin(Xid(1, b"taking back", end.encode()))
    assert broker.cancel(waits) == [waits]
    assert broker.scheduled(waits).state == "waits"
    broker.tpc_prepare()
    assert broker.scheduled(waits).state == "held"
    getattr(broker, end)()
    assert broker.scheduled(waits).state == state


@pytest.mark.slow
def test_a_session_takes_back_with_its_commit(broker, tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'shop'}")
    with engine.connect() as connection:
        create_decision_table(connection)
    sessions = sessionmaker(engine)
    messages = carry(sessions, broker, wait="commit", max_bytes=200)
    first, second = (broker.send("orders", b"v", after=3600).scheduled for _ in range(2))
    with sessions() as session:
        messages.cancel(session, first)
        with session.begin_nested() as savepoint:
            messages.cancel(session, second)
            savepoint.rollback()
        assert messages.waiting(session) == [taken_back(first, None)]
        with pytest.raises(errors.BufferFull):
            messages.cancel(session, message_id="x" * 100)
        session.commit()
    assert [broker.scheduled(each).state for each in (first, second)] == ["cancelled", "waits"]
    with sessions() as session:
        messages.cancel(session, str(second))
        messages.cancel(session, first)
        with pytest.raises(errors.NotScheduled):
            session.commit()
    assert broker.scheduled(second).state == "waits"
    engine.dispose()


@pytest.mark.slow
def test_a_block_whose_message_comes_first_is_rolled_back_on_both_sides(broker, database):
    waits = broker.send("orders", b"v", after=0.3).scheduled
    with pytest.raises(errors.NotScheduled), txbroker.atomic(database, broker) as tx:  # noqa: PT012 - the block is what raises
        tx.cancel(waits)
        database.execute("INSERT INTO orders VALUES (1)")
        time.sleep(0.6)
    assert database.execute("SELECT count(*) FROM orders").fetchone() == (0,)


@pytest.mark.slow
def test_a_block_that_takes_back_does_not_go_through_the_outbox(broker, database):
    waits = broker.send("orders", b"v", after=3600).scheduled
    with (
        pytest.raises(errors.Misuse, match="takes a scheduled one back"),
        txbroker.atomic(database, broker, mode="outbox") as tx,
    ):
        tx.cancel(waits)
    assert broker.scheduled(waits).state == "waits"


def test_what_waits_for_an_orms_commit_is_sent_with_the_rest_of_its_time(monkeypatch):
    now, sent = [1000.0], []
    monkeypatch.setattr("txbroker.client.loop.kept_due.since_boot", lambda: now[0])

    class Block:
        xid = object()

        def send(self, *message, **due):
            sent.append((message, due))

        def __exit__(self, *error):
            pass

        def cancel(self, *given, **named):
            sent.append((given, named))

    messages = [
        Waiting("t", b"a", due=kept_due(90, None)), Waiting("t", b"b"), taken_back("4-1042-9f8e7d6c", None)
    ]  # fmt: skip
    now[0] += 60
    commit_with(Block(), messages)
    assert sent == [
        (("t", b"a", None, None, None, None), {"after": timedelta(seconds=30)}),
        (("t", b"b", None, None, None, None), {}),
        ((ScheduledId(4, 1042, 0x9F8E7D6C),), {"message_id": None}),
    ]
