"""Test workers whose partitions others take, whose broker dies, and whose commits are not answered."""

import logging
import threading

import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from tests.worker.scene import PATIENCE, fill, position, reached, running, unfinished, values
from txbroker import errors
from txbroker.wire.requests import Commit
from txbroker.worker.blocking import ThreadCaller
from txbroker.worker.hand import Caller

pytestmark = pytest.mark.slow


@pytest.fixture
def mortal(tmp_path):
    with BrokerProcess(tmp_path / "data", "max_ahead=64") as process:
        yield process


@pytest.fixture
def connection(mortal):
    with txbroker.connect(mortal.address, timeout=60.0) as connection:
        yield connection


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_worker_that_has_lost_all_partitions_ends_and_finishes_nothing_of_them(
    broker, topic, transaction, caplog
):
    fill(broker, topic, 10)
    begun, go_on, calls = threading.Barrier(3), threading.Event(), []

    def handle(message, *more):
        calls.append(message.offset)
        if message.offset < 2:
            begun.wait(PATIENCE)
        reached(go_on)

    worker = broker.work(topic, topic, handle, transaction=transaction, concurrency=2, partitions=[0])
    with running(worker, stops=False) as raised:
        begun.wait(PATIENCE)
        with broker.consume(topic, topic, partitions=[0]) as other:
            assert len(other.poll(PATIENCE)) == 10
            go_on.set()
    if transaction:  # what is in hand is dropped before it is begun
        assert sorted(calls) == [0, 1]
    assert [type(error) for error in raised] == [errors.GenerationFenced]
    assert unfinished(broker, topic, topic, [0]) == list(range(10))
    assert caplog.text.count("to another consumer") == 1


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_worker_that_has_lost_one_partition_goes_on_with_the_others(broker, topic, transaction, caplog):
    broker.alter_topic(topic, partitions=2)
    for number in range(40):
        broker.send(topic, b"%d" % number, partition=number % 2)
    lost, begun, go_on = [], threading.Event(), threading.Event()

    def handle(message, *more):
        if message.partition == 0:
            begun.set()
            reached(go_on)

    worker = broker.work(topic, topic, handle, transaction=transaction, concurrency=4, partitions=[0, 1])
    with running(worker) as raised:
        reached(begun)
        with broker.consume(topic, topic, partitions=[0]) as other:
            lost += other.poll(PATIENCE)
            go_on.set()
            while {at.partition: at.offset for at in broker.group_offsets(topic)}.get(1) != 20:
                assert threading.Event().wait(0.01) is False
        assert len(lost) == 20
    assert raised == []
    assert {at.partition: at.offset or 0 for at in broker.group_offsets(topic)} == {0: 0, 1: 20}
    assert caplog.text.count("to another consumer") == 1


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_workers_that_come_and_go_share_the_partitions_and_handle_each_message_once(
    broker, url, topic, transaction
):
    broker.alter_topic(topic, partitions=4)
    handled, both = [], threading.Event()

    def handler(name):
        def handle(message, *more):
            handled.append((name, message.partition, message.offset))
            if len({who for who, _, _ in handled}) == 2:
                both.set()

        return handle

    def sent(count):
        for number in range(count):
            broker.send(topic, b"%d" % number, partition=number % 4)

    def are_all_finished():
        return all(each.lag == 0 for each in broker.describe_group(topic).partitions)

    choices = {"transaction": transaction, "concurrency": 4}
    with (
        txbroker.connect(url, timeout=60.0) as elsewhere,
        running(broker.work(topic, topic, handler("first"), member="first", **choices)) as raised,
    ):
        sent(200)
        with running(elsewhere.work(topic, topic, handler("second"), **choices)) as raised_too:
            while not both.is_set():
                sent(8)
        sent(40)
        eventually(are_all_finished)
    assert raised == raised_too == []
    (found,) = broker.topics([topic])
    places = [(partition, offset) for _, partition, offset in handled]
    assert sorted(places) == [
        (each.index, offset) for each in found.partitions for offset in range(each.high_watermark)
    ]


def test_a_refusal_for_one_partition_keeps_no_message_of_another_from_being_finished(broker, topic):
    broker.alter_topic(topic, partitions=2)
    for number in range(6):
        broker.send(topic, b"%d" % number, partition=number % 2)
    asked, go_on, requests = threading.Event(), threading.Event(), []
    all_handled = threading.Barrier(7)
    worker = broker.work(
        topic, topic, lambda message: all_handled.wait(PATIENCE), concurrency=6, partitions=[0, 1]
    )
    done = worker._face.done

    async def held_up(messages):
        requests.append({message.partition for message in messages})
        asked.set()
        reached(go_on)
        await done(messages)

    worker._face.done = held_up
    with running(worker) as raised:
        all_handled.wait(PATIENCE)
        reached(asked)
        while worker._core.tally.handled < 6:
            assert threading.Event().wait(0.01) is False
        with broker.consume(topic, topic, partitions=[0]) as other:
            assert len(other.poll(PATIENCE)) == 3
            go_on.set()
            while {at.partition: at.offset for at in broker.group_offsets(topic)}.get(1) != 3:
                assert threading.Event().wait(0.01) is False
    assert raised == []
    assert {0, 1} in requests
    assert {at.partition: at.offset or 0 for at in broker.group_offsets(topic)} == {0: 0, 1: 3}


@pytest.mark.parametrize("kills", [3])
def test_a_broker_that_dies_again_and_again_costs_and_doubles_nothing(connection, mortal, kills):
    connection.create_topic("in")
    connection.create_topic("out")
    fill(connection, "in", 300)
    killed = set()

    def handle(message, tx):
        tx.send("out", message.value)
        if message.offset % 100 == 50 and message.offset not in killed:
            killed.add(message.offset)
            mortal.kill()
            mortal.start()

    connection.work("in", "g", handle, transaction="broker", concurrency=8, follow=False).run()
    assert len(killed) == kills
    assert position(connection, "g") == 300
    assert values(connection, "out") == list(range(300))


def test_a_broker_that_dies_again_and_again_doubles_no_row(connection, mortal, postgresql):
    with postgresql.connect() as database:
        make_tables(database)
    connection.create_topic("in")
    connection.create_topic("out")
    fill(connection, "in", 200)
    killed = set()

    def handle(message, tx, database):
        database.execute("INSERT INTO orders VALUES (%s)", (message.offset,))
        tx.send("out", message.value)
        if message.offset % 100 == 50 and message.offset not in killed:
            killed.add(message.offset)
            mortal.kill()
            mortal.start()

    connection.work("in", "g", handle, transaction=postgresql.connect, concurrency=8, follow=False).run()
    assert len(killed) == 2
    with postgresql.connect() as database:
        assert database.execute("SELECT count(*), max(number) FROM orders").fetchone() == (200, 199)
    eventually(lambda: values(connection, "out") == list(range(200)))
    assert position(connection, "g") == 200


def test_a_commit_that_is_not_answered_is_asked_for_and_not_done_again(mortal, monkeypatch):
    with txbroker.connect(mortal.address, timeout=1.0) as connection:
        connection.create_topic("in")
        connection.create_topic("out")
        fill(connection, "in", 1)
        handled = []

        def handle(message, tx):
            tx.send("out", message.value)
            handled.append(message.offset)
            mortal.pause()

        async def outcome(caller, attempt):
            mortal.resume()
            return await Caller.outcome(caller, attempt)

        worker = connection.work("in", "g", handle, transaction="broker", follow=False)
        with monkeypatch.context() as patch:
            patch.setattr(ThreadCaller, "outcome", outcome)
            worker.run()
        assert handled == [0]
        assert values(connection, "out") == [0]
        assert position(connection, "g") == 1


class Told(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self, event, what):
        super().__init__()
        self.event, self.what = event, what
        logging.getLogger("txbroker.worker").addHandler(self)

    def emit(self, record):
        if self.what in record.getMessage():
            self.event.set()


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_what_is_too_far_ahead_of_a_slow_message_is_finished_once_that_is(connection, transaction, caplog):
    connection.create_topic("in")
    fill(connection, "in", 200)
    go_on, count, enough, refused = threading.Event(), [], threading.Event(), threading.Event()
    Told(refused, "max_ahead")
    caplog.set_level(logging.INFO, "txbroker.worker")

    def handle(message, *more):
        if message.offset == 0:
            reached(go_on)
        count.append(message.offset)
        if len(count) >= 64:
            enough.set()

    worker = connection.work("in", "g", handle, transaction=transaction, concurrency=2, follow=False)
    with running(worker) as raised:
        reached(enough)
        reached(refused)
        go_on.set()
        while position(connection, "g") < 200:
            assert threading.Event().wait(0.01) is False
    assert raised == []
    assert position(connection, "g") == 200


def test_a_broker_that_is_away_for_longer_than_the_time_out_is_waited_for(mortal):
    with txbroker.connect(mortal.address, timeout=0.5) as connection:
        connection.create_topic("in")
        fill(connection, "in", 10)
        half, away, seen = threading.Event(), threading.Event(), []
        Told(away, "cannot read")

        def handle(message):
            seen.append(message.offset)
            if len(seen) == 10:
                half.set()

        worker = connection.work("in", "g", handle, max_wait=0.1)
        with running(worker) as raised:
            reached(half)
            mortal.kill()
            reached(away)
            mortal.start()
            fill(connection, "in", 10)
            while position(connection, "g") < 20:
                assert threading.Event().wait(0.01) is False
    assert raised == []
    assert sorted(seen) == list(range(20))


def test_what_was_handled_and_cannot_be_finished_in_time_is_told(mortal):
    with txbroker.connect(mortal.address, timeout=0.2) as connection:
        connection.create_topic("in")
        fill(connection, "in", 1)
        later = threading.Event()
        Told(later, "are finished later")

        def handle(message):
            mortal.kill()

        worker = connection.work("in", "g", handle, stop_timeout=0.3)
        with running(worker) as raised:
            reached(later)
        (error,) = raised
        assert isinstance(error, errors.StopTimedOut)
        assert "1 message handled could not be finished" in str(error)
        mortal.start()
        assert unfinished(connection, "in", "g") == [0]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_worker_ends_whose_commit_is_unanswered_when_another_broker_takes_the_place(
    mortal, connection, concurrency, tmp_path
):
    connection.create_topic("tasks")
    fill(connection, "tasks", 10)
    begun = threading.Barrier(concurrency + 1)

    def handle(message, tx):
        tx.send("tasks", b"never")
        begun.wait(PATIENCE)
        begun.wait(PATIENCE)

    options = {"concurrency": concurrency, "order": None, "transaction": "broker"}
    with txbroker.connect(mortal.address, timeout=60.0) as mine:
        worker = mine.work("tasks", "group", handle, **options)
        with running(worker, stops=False) as raised:
            begun.wait(PATIENCE)
            mortal.pause()
            begun.wait(PATIENCE)
            eventually(lambda: commits_on_their_way(mine) == concurrency)
            mortal.kill()
            mortal.data_dir = tmp_path / "others"
            mortal.start()
    assert [type(error) for error in raised] == [errors.BrokerReplaced]


def commits_on_their_way(connection):
    return sum(isinstance(call.request, Commit) for call in list(connection.core._pending.values()))
