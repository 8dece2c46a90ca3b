"""Test blocks that follow each other so fast that they are delivered together: once, in order, and in time."""

import sqlite3
import threading
import time

import pytest

import txbroker
from tests.databases.orders import opener
from tests.databases.outbox.scene import all_of, has_come, is_empty, rows_of, send
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.blocking.held_output import PACER
from txbroker.databases.outbox import streams
from txbroker.databases.outbox.stream import JOINED_BYTES

pytestmark = pytest.mark.slow


class Deliveries:
    """The numbers of deliveries from memory, in their order, but for the first block, which the keeper may deliver."""

    def __init__(self, monkeypatch):
        self.numbers = []
        deliver = streams.deliver

        def noted(core, serials, delivery, *arguments):
            if delivery.number > 1:
                self.numbers.append(delivery.number)
            return deliver(core, serials, delivery, *arguments)

        monkeypatch.setattr(streams, "deliver", noted)


@pytest.fixture
def delivered(monkeypatch):
    return Deliveries(monkeypatch)


@pytest.fixture
def burst(monkeypatch):
    """Whatever the machine does, a block has followed the one before fast enough, and is held for long."""
    monkeypatch.setattr(streams, "JOIN_WITHIN", 60.0)


@pytest.fixture
def unpaced(monkeypatch, burst):
    """Nobody sends what is held because it is time."""
    monkeypatch.setattr(PACER, "expect", lambda _: None)


@pytest.fixture
def program(shared_broker):
    """A connection for blocks alone; another one reads."""
    with txbroker.connect(shared_broker.address, timeout=30.0) as connection:
        yield connection


def begin(database, program, topic):
    """The first block: the next ones are delivered from memory, and hold. The keeper has nothing more to do."""
    send(database, program, topic, 0, wait="commit")
    eventually(lambda: program.resolver._asleep)


def begin_with(database, program, topic, number):
    """The same with another number, for a second program."""
    send(database, program, topic, number, wait="commit")
    eventually(lambda: program.resolver._asleep)


def of(program):
    """The program's streams."""
    return program.resolver.streams(next(iter(program.resolver._charges)))


class TestTogether:
    def test_blocks_in_a_burst_go_in_few_deliveries_and_arrive_in_order(
        self, database, open_database, program, broker, topic, delivered
    ):
        begin(database, program, topic)
        for number in range(1, 301):
            send(database, program, topic, number)
        has_come(broker, topic, *range(301))
        is_empty(open_database)
        assert delivered.numbers == sorted(set(delivered.numbers))
        assert delivered.numbers[-1] == 301

    def test_the_last_one_is_sent_in_time_though_the_program_does_nothing(
        self, lite, program, broker, topic, delivered
    ):
        begin(lite, program, topic)
        for number in range(1, 6):
            send(lite, program, topic, number)
        began = time.monotonic()
        has_come(broker, topic, *range(6))
        assert time.monotonic() - began < 0.5

    def test_those_that_follow_do_not_delay_it(self, lite, program, broker, topic, delivered, monkeypatch):
        monkeypatch.setattr(streams, "JOIN_WITHIN", 0.1)
        begin(lite, program, topic)
        end, number = time.monotonic() + 1.0, 0
        while time.monotonic() < end:
            number += 1
            send(lite, program, topic, number)
        assert len(delivered.numbers) >= 3
        has_come(broker, topic, *range(number + 1))

    def test_what_is_held_goes_together(self, lite, program, broker, topic, delivered, unpaced):
        begin(lite, program, topic)
        for number in range(1, 6):
            send(lite, program, topic, number)
        of(program).send_held()
        has_come(broker, topic, *range(6))
        assert delivered.numbers == [6]

    def test_whoever_waits_for_one_has_all_before_it_sent(
        self, lite, program, broker, topic, delivered, unpaced
    ):
        begin(lite, program, topic)
        for number in range(1, 4):
            send(lite, program, topic, number)
        send(lite, program, topic, 4, wait="commit")
        assert all_of(broker, topic) == [0, 1, 2, 3, 4]
        assert delivered.numbers == [5]

    def test_a_two_phase_block_comes_after_what_is_held(self, lite, program, broker, topic, unpaced):
        begin(lite, program, topic)
        send(lite, program, topic, 1)
        send(lite, program, topic, 2)
        send(lite, program, topic, 3, mode="two-phase", wait="commit")
        assert all_of(broker, topic) == [0, 1, 2, 3]

    def test_a_large_block_waits_for_nobody_and_takes_along_what_is_held(
        self, lite, program, broker, topic, delivered, unpaced
    ):
        begin(lite, program, topic)
        send(lite, program, topic, 1)
        with txbroker.atomic(lite, program, mode="outbox") as tx:
            lite.execute("INSERT INTO orders VALUES (2)")
            tx.send(topic, bytes(JOINED_BYTES))
        eventually(lambda: len(broker.read(topic, 0, 0)) == 3)
        assert delivered.numbers == [2, 3]

    def test_compressed_messages_are_not_joined_because_nobody_has_counted_them(
        self, lite, shared_broker, broker, topic, delivered, unpaced
    ):
        with txbroker.connect(shared_broker.address, compression="zstd", timeout=30.0) as program:
            send(lite, program, topic, 0, wait="commit")
            for number in (1, 2):
                with txbroker.atomic(lite, program, mode="outbox") as tx:
                    lite.execute(f"INSERT INTO orders VALUES ({number})")
                    for _ in range(50):
                        tx.send(topic, bytes(200))
            send(lite, program, topic, 3, wait="commit")
            assert len(broker.read(topic, 0, 0)) == 102
        assert delivered.numbers == [2, 3, 4]

    def test_a_refusal_is_of_one_block_and_not_of_those_that_went_with_it(
        self, lite, sqlite, program, broker, topic, delivered, unpaced
    ):
        other = f"{topic}-other"
        broker.create_topic(other)
        begin(lite, program, topic)
        send(lite, program, topic, 1)
        send(lite, program, other, 2)
        send(lite, program, topic, 3)
        broker.delete_topic(other)
        of(program).send_held()
        has_come(broker, topic, 0, 1, 3)
        is_empty(opener(sqlite))
        assert delivered.numbers[0] == 4
        assert [number for _, number in rows_of(opener(sqlite), "txbroker_outbox_refused")] == [3]

    def test_after_a_lost_answer_they_are_not_delivered_again_with_those_that_came_since(
        self, lite, sqlite, program, broker, topic, delivered, unpaced, monkeypatch
    ):
        monkeypatch.setattr("txbroker.databases.charge.Charge.take_in", lambda _: False)  # no answer is read
        begin(lite, program, topic)
        send(lite, program, topic, 1)
        send(lite, program, topic, 2)
        mine = of(program)
        mine.send_held()
        has_come(broker, topic, 0, 1, 2)
        send(lite, program, topic, 3)
        for stream in mine.all.values():
            stream.unsend()
        mine.send_held()
        monkeypatch.undo()
        has_come(broker, topic, 0, 1, 2, 3)
        is_empty(opener(sqlite))
        assert all_of(broker, topic) == [0, 1, 2, 3]

    def test_closing_the_connection_delivers_what_is_held(
        self, lite, sqlite, shared_broker, broker, topic, burst
    ):
        with txbroker.connect(shared_broker.address, timeout=30.0) as program:
            begin(lite, program, topic)
            send(lite, program, topic, 1)
            send(lite, program, topic, 2)
            held = of(program)
        assert all_of(broker, topic) == [0, 1, 2]
        assert rows_of(opener(sqlite)) == []
        assert held not in PACER._holders

    def test_an_interrupt_before_the_pacer_knows_delays_them_by_a_second_at_most(
        self, lite, program, broker, topic, burst, monkeypatch
    ):
        begin(lite, program, topic)

        def interrupted(holder):
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(PACER, "expect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(lite, program, topic, 1)
        monkeypatch.setattr(PACER, "expect", lambda _: None)
        began = time.monotonic()
        has_come(broker, topic, 0, 1)
        assert time.monotonic() - began < 3.0

    def test_one_whose_stream_was_fenced_meanwhile_is_read_from_the_table(
        self, lite, sqlite, program, broker, topic, unpaced
    ):
        begin(lite, program, topic)
        send(lite, program, topic, 1)
        with txbroker.Resolver(opener(sqlite), broker) as resolver:
            eventually(lambda: resolver.resolve() and all_of(broker, topic) == [0, 1])
        send(lite, program, topic, 2, wait="commit")
        assert all_of(broker, topic) == [0, 1, 2]

    def test_a_bound_of_what_is_undelivered_refuses_no_block_beside_a_broker_that_answers(
        self, lite, program, broker, topic
    ):
        """Nobody reads answers while blocks follow each other: whoever is about to be refused does."""
        begin(lite, program, topic)
        refused, sent = 0, [0]
        for number in range(1, 401):
            try:
                send(lite, program, topic, number, max_backlog=txbroker.Backlog(rows=20))
                sent.append(number)
            except errors.BacklogFull:
                refused += 1
                time.sleep(0.005)  # the machine is busy
        assert refused < 100
        has_come(broker, topic, *sent)

    def test_a_connection_whose_lock_is_held_keeps_no_other_from_being_sent_in_time(
        self, lite, sqlite, shared_broker, program, broker, topic, monkeypatch
    ):
        monkeypatch.setattr(streams, "JOIN_WITHIN", 0.05)
        held, release = threading.Event(), threading.Event()

        def stuck():
            with program._driver.lock:
                held.set()
                release.wait(10.0)

        begin(lite, program, topic)
        with (
            txbroker.connect(shared_broker.address, timeout=30.0) as other,
            sqlite3.connect(sqlite) as second,
        ):
            begin_with(second, other, topic, 1)
            send(lite, program, topic, 2)
            send(lite, program, topic, 3)
            holder = threading.Thread(target=stuck)
            holder.start()
            held.wait(10.0)
            of(program).held_until = 0.0  # something is held there, whatever has happened meanwhile
            for number in (4, 5, 6):
                send(second, other, topic, number)
            began = time.monotonic()
            eventually(lambda: {4, 5, 6} <= {*all_of(broker, topic)})
            took = time.monotonic() - began
            release.set()
            holder.join()
        assert took < 0.8
        eventually(lambda: {*range(7)} == {*all_of(broker, topic)})
