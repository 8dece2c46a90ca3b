"""Test workers of the blocking client: several messages at once, their order, failures, the end."""

import contextlib
import logging
import os
import re
import signal
import sqlite3
import threading
from collections import defaultdict

import pytest
import sqlalchemy
import sqlalchemy.orm

import txbroker
from tests.databases.orders import make_tables
from tests.worker.scene import PATIENCE, fill, position, reached, running, unfinished, values
from txbroker import errors

pytestmark = pytest.mark.slow


class AtOnce:
    """A handler that waits until ``count`` calls are under way, and knows how many there were at most."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count)
        self.lock = threading.Lock()
        self.under_way = self.most = 0

    def __call__(self, message, *more):
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.barrier.wait(PATIENCE)
        with self.lock:
            self.under_way -= 1


@pytest.mark.parametrize("transaction", [None, "broker"])
@pytest.mark.parametrize("key", [None, lambda number: b"%d" % number])
def test_so_many_messages_of_one_partition_are_handled_at_once_and_no_more(broker, topic, transaction, key):
    fill(broker, topic, 64, key)
    handler = AtOnce(8)
    broker.work(topic, topic, handler, concurrency=8, transaction=transaction, follow=False).run()
    assert handler.most == 8
    assert position(broker, topic) == 64


@pytest.mark.parametrize("batch", [1, 3])
def test_messages_of_a_key_are_handled_one_after_another(broker, topic, batch):
    fill(broker, topic, 300, lambda number: b"%d" % (number % 5))
    lock, under_way, seen = threading.Lock(), set(), defaultdict(list)

    def handle(what):
        messages = what if batch > 1 else [what]
        keys = {message.key for message in messages}
        with lock:
            assert not keys & under_way
            under_way.update(keys)
            for message in messages:
                seen[message.key].append(message.offset)
        with lock:
            under_way.difference_update(keys)

    broker.work(topic, topic, handle, concurrency=8, batch=batch, follow=False).run()
    assert len(seen) == 5
    assert all(offsets == sorted(offsets) and len(offsets) == 60 for offsets in seen.values())
    assert position(broker, topic) == 300


def test_by_partition_one_call_at_a_time_runs_for_each(broker):
    broker.create_topic("by-partition", partitions=2)
    for number in range(40):
        broker.send("by-partition", b"%d" % number, partition=number % 2)
    barrier, lock, under_way, seen = threading.Barrier(2), threading.Lock(), set(), []

    def handle(message):
        with lock:
            assert message.partition not in under_way
            under_way.add(message.partition)
            seen.append((message.partition, message.offset))
        barrier.wait(PATIENCE)
        with lock:
            under_way.remove(message.partition)

    broker.work("by-partition", "g", handle, concurrency=4, order="partition", follow=False).run()
    for index in (0, 1):
        assert [offset for partition, offset in seen if partition == index] == list(range(20))


def test_what_is_handled_is_finished_in_groups(broker, topic):
    fill(broker, topic, 2000)
    worker = broker.work(topic, topic, lambda message: None, concurrency=4, batch=1, follow=False)
    counts, done = [], worker._face.done

    async def counted(messages):
        counts.append(len(messages))
        await done(messages)

    worker._face.done = counted
    worker.run()
    assert sum(counts) == 2000
    assert len(counts) < 2000
    assert (worker._core.schedule.in_hand, worker._core.schedule._bytes) == (0, 0)
    assert position(broker, topic) == 2000


def test_a_bounded_number_of_messages_is_in_hand(broker, topic):
    fill(broker, topic, 100)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def handle(message):
        begun.release()
        reached(go_on)

    worker = broker.work(topic, topic, handle, concurrency=3)
    with running(worker):
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE)
        handed_out = worker._face._reading().offsets()
        assert sum(each.offset for each in handed_out) <= 6
        assert worker._core.schedule.in_hand <= 6
        worker.stop()
        go_on.set()
    assert position(broker, topic) == 3


def test_once_a_minute_or_as_often_as_asked_for_it_says_what_it_does(broker, topic, caplog):
    caplog.set_level(logging.INFO, "txbroker.worker")
    fill(broker, topic, 5)
    go_on = threading.Event()

    def handle(message):
        if message.offset == 4:
            reached(go_on)
        if message.offset == 1:
            raise ZeroDivisionError

    line = re.compile(rf"group {topic}: (\d) messages? handled in .*, (\d) failed, (\d) under way, lag (\d)")
    with running(
        broker.work(
            topic, topic, handle, retry=txbroker.RetryPolicy(attempts=1, ending="drop"), report_interval=0.05
        )
    ):
        while True:
            told = [tuple(map(int, found)) for found in line.findall(caplog.text)]
            if told and told[-1][2:] == (1, 1):
                break
            assert threading.Event().wait(0.01) is False
        assert sum(handled for handled, *_ in told) == 3
        assert sum(failed for _, failed, *_ in told) == 1
        go_on.set()


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_stop_finishes_what_is_under_way_and_begins_nothing_more(broker, topic, transaction):
    fill(broker, topic, 50)
    begun, go_on, seen = threading.Semaphore(0), threading.Event(), []

    def handle(message, *more):
        seen.append(message.offset)
        begun.release()
        reached(go_on)

    worker = broker.work(topic, topic, handle, concurrency=4, transaction=transaction)
    with running(worker) as raised:
        for _ in range(4):
            assert begun.acquire(timeout=PATIENCE)
        worker.stop()
        go_on.set()
    assert raised == []
    assert sorted(seen) == [0, 1, 2, 3]
    assert unfinished(broker, topic, topic) == list(range(4, 50))


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_call_that_does_not_end_in_time_stays_unfinished_even_if_it_ends_later(broker, topic, transaction):
    fill(broker, topic, 2)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def handle(message, *more):
        if message.offset == 0:
            begun.set()
            reached(go_on)
            ended.set()

    worker = broker.work(topic, topic, handle, concurrency=2, transaction=transaction, stop_timeout=0.2)
    with running(worker) as raised:
        reached(begun)
        worker.stop()
    (error,) = raised
    assert isinstance(error, errors.StopTimedOut)
    assert f"{topic}-0 offset 0" in str(error)
    go_on.set()
    reached(ended)
    assert 0 in unfinished(broker, topic, topic)


def test_stopped_before_it_runs_it_handles_nothing(broker, topic):
    fill(broker, topic, 1)
    worker = broker.work(topic, topic, lambda message: pytest.fail("handled"))
    worker.stop()
    worker.run()


def test_it_runs_once(broker, topic):
    worker = broker.work(topic, topic, print, follow=False)
    worker.run()
    with pytest.raises(errors.Misuse, match="Make another one"):
        worker.run()


def test_an_interrupt_stops_it_in_order_and_is_raised_then(broker, topic):
    fill(broker, topic, 20)
    seen = []

    def handle(message):
        if not seen:
            os.kill(os.getpid(), signal.SIGINT)
        seen.append(message.offset)

    worker = broker.work(topic, topic, handle, concurrency=2)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    assert unfinished(broker, topic, topic) == [offset for offset in range(20) if offset not in seen]


def test_hooks_are_called_around_all_of_it_also_if_it_fails(broker, topic):
    fill(broker, topic, 1)
    said = []

    def handle(message):
        said.append("handle")
        raise ZeroDivisionError

    worker = broker.work(
        topic, topic, handle,
        on_start=lambda connection: said.append(connection), on_stop=lambda connection: said.append("stop"),
        retry=False,
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        worker.run()
    assert said == [broker, "handle", "stop"]


def test_if_the_first_hook_fails_nothing_is_read(broker, topic):
    worker = broker.work(topic, topic, lambda message: None, on_start=lambda connection: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        worker.run()
    assert broker.group_offsets(topic) == []


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_failure_ends_the_worker_with_it_and_everything_else_under_way_is_finished(
    broker, topic, transaction
):
    fill(broker, topic, 20)
    barrier, seen = threading.Barrier(3), []

    def handle(message, *more):
        seen.append(message.offset)
        if message.offset < 3:
            barrier.wait(PATIENCE)
        if message.offset == 1:
            raise ZeroDivisionError("poison")

    worker = broker.work(topic, topic, handle, concurrency=3, transaction=transaction, retry=False)
    with pytest.raises(ZeroDivisionError, match="poison"):
        worker.run()
    assert worker.failed.offset == 1
    left = unfinished(broker, topic, topic)
    assert left == [offset for offset in range(20) if offset == 1 or offset not in seen]


def test_a_handler_that_ends_its_thread_ends_the_worker(broker, topic):
    fill(broker, topic, 1)

    def handle(message):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        broker.work(topic, topic, handle).run()
    assert unfinished(broker, topic, topic) == [0]


def test_a_topic_that_is_missing_ends_the_worker(broker):
    with pytest.raises(errors.UnknownTopic):
        broker.work("nowhere", "g", lambda message: None).run()


def test_something_to_await_is_refused(broker, topic):
    fill(broker, topic, 1)

    async def handle(message):
        return None

    with pytest.raises(errors.Misuse, match="to await"):
        broker.work(topic, topic, handle).run()
    assert unfinished(broker, topic, topic) == [0]


# -- transactions ----------------------------------------------------------------------------------


def test_what_the_handler_sends_is_committed_with_the_message(broker, topic):
    broker.create_topic(f"{topic}-out")
    fill(broker, topic, 200)

    def handle(message, tx):
        tx.send(f"{topic}-out", message.value)
        if message.offset == 150:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broker.work(topic, topic, handle, transaction="broker", concurrency=8, retry=False).run()
    left = unfinished(broker, topic, topic)
    assert 150 in left
    assert values(broker, f"{topic}-out") == [number for number in range(200) if number not in left]


def test_at_its_very_beginning_a_group_calls_the_handler_once_for_each_message(broker, topic, postgresql):
    with postgresql.connect() as database:
        make_tables(database)
    fill(broker, topic, 16)
    barrier, calls = threading.Barrier(4), []

    def handle(message, tx, database):
        calls.append(message.offset)
        database.execute("INSERT INTO orders VALUES (%s)", (message.offset,))
        barrier.wait(PATIENCE)

    broker.work(topic, topic, handle, transaction=postgresql.connect, concurrency=4, follow=False).run()
    assert sorted(calls) == list(range(16))


def test_rows_are_committed_with_the_message_each_on_a_connection_of_its_own(broker, topic, sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
    fill(broker, topic, 40)
    opened = []

    def opens():
        opened.append(sqlite3.connect(sqlite, timeout=PATIENCE))
        return opened[-1]

    def handle(message, tx, database):
        database.execute("INSERT INTO orders VALUES (?)", (message.offset,))

    broker.work(topic, topic, handle, transaction=opens, concurrency=2, follow=False).run()
    assert position(broker, topic) == 40
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        assert [number for (number,) in database.execute("SELECT number FROM orders")] == list(range(40))


def test_a_database_without_the_table_ends_the_worker(broker, topic, sqlite):
    fill(broker, topic, 1)
    worker = broker.work(topic, topic, lambda *all_of_it: None, transaction=lambda: sqlite3.connect(sqlite))
    with pytest.raises(errors.DecisionTableMissing):
        worker.run()


def test_sessions_of_sqlalchemy_are_connections_too(broker, topic, sqlite):
    engine = sqlalchemy.create_engine(f"sqlite:///{sqlite}", connect_args={"timeout": PATIENCE})
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
    fill(broker, topic, 20)

    def handle(message, tx, session):
        session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:number)"), {"number": message.offset})
        if message.offset == 7 and not failed:
            failed.append(message)
            raise ZeroDivisionError

    failed = []
    opens = sqlalchemy.orm.sessionmaker(engine)
    with pytest.raises(ZeroDivisionError):
        broker.work(topic, topic, handle, transaction=opens, concurrency=2, retry=False).run()
    broker.work(topic, topic, handle, transaction=opens, concurrency=2, follow=False).run()
    assert position(broker, topic) == 20
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        assert [number for (number,) in database.execute("SELECT number FROM orders")] == list(range(20))
    engine.dispose()


def test_a_row_whose_commit_failed_is_written_again_on_another_connection(broker, topic, sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
    fill(broker, topic, 3)
    used, failures = [], [sqlite3.OperationalError("disk I/O error")]

    class Failing(sqlite3.Connection):
        def commit(self):
            if failures:
                raise failures.pop()
            super().commit()

    def opens():
        return sqlite3.connect(sqlite, timeout=PATIENCE, factory=Failing)

    def handle(message, tx, database):
        used.append(database)
        database.execute("INSERT INTO orders VALUES (?)", (message.offset,))

    broker.work(topic, topic, handle, transaction=opens, follow=False).run()
    assert len(used) == 4
    assert used[0] is not used[1]
    assert position(broker, topic) == 3
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        assert [number for (number,) in database.execute("SELECT number FROM orders")] == [0, 1, 2]


def test_a_database_that_is_away_is_waited_for(broker, topic):
    fill(broker, topic, 3)
    tries, seen = [], []

    def opens():
        tries.append(None)
        if len(tries) < 3:
            raise sqlite3.OperationalError("unable to open database file")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broker.work(topic, topic, lambda *all_of_it: seen.append(all_of_it), transaction=opens).run()
    assert (len(tries), seen) == (3, [])
