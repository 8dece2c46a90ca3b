"""Test blocks that only send: their messages travel in the database, and arrive once and in order."""

import contextlib
import gc
import subprocess
import sys
import threading

import pytest

import txbroker
from journal.transaction_states import State
from tests.databases.orders import execute, numbers
from tests.databases.outbox.scene import all_of, has_come, is_empty, rows_of, send, streams_of
from tests.support.waiting import eventually
from txbroker import errors

pytestmark = pytest.mark.slow


class TestBlocks:
    def test_row_and_message_arrive_and_nothing_is_left(self, open_database, database, broker, topic):
        tx = send(database, broker, topic, 42)
        assert tx.outcome is State.COMMITTED
        assert numbers(open_database) == [42]
        has_come(broker, topic, 42)
        is_empty(open_database)

    def test_many_blocks_arrive_in_their_order(self, open_database, database, broker, topic):
        for number in range(200):
            send(database, broker, topic, number)
        has_come(broker, topic, *range(200))
        is_empty(open_database)

    def test_with_wait_commit_the_messages_are_visible_at_the_end(self, database, broker, topic):
        for number in range(3):
            send(database, broker, topic, number, wait="commit")
            assert all_of(broker, topic) == list(range(number + 1))

    def test_a_block_that_fails_leaves_neither(self, open_database, database, broker, topic):
        tx = txbroker.atomic(database, broker, mode="outbox")

        def fail():
            with tx:
                execute(database, "INSERT INTO orders VALUES (1)")
                tx.send(topic, b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert tx.outcome is State.ROLLED_BACK
        send(database, broker, topic, 2, wait="commit")
        assert (numbers(open_database), all_of(broker, topic)) == ([2], [2])

    def test_a_row_that_the_database_refuses_takes_the_messages_with_it(
        self, open_database, database, broker, topic
    ):
        send(database, broker, topic, 1)
        with pytest.raises(Exception, match=r"(?i)unique|duplicate") as caught:
            send(database, broker, topic, 1)
        assert any("rolled back at both sides" in note for note in caught.value.__notes__)
        send(database, broker, topic, 2, wait="commit")
        assert all_of(broker, topic) == [1, 2]

    def test_a_block_that_sends_nothing_is_an_ordinary_commit(self, open_database, database, broker):
        with txbroker.atomic(database, broker, mode="outbox"):
            execute(database, "INSERT INTO orders VALUES (1)")
        assert numbers(open_database) == [1]
        assert rows_of(open_database) == []

    def test_messages_of_several_topics_and_partitions_arrive(self, database, broker, topic):
        other = f"{topic}-other"
        broker.create_topic(other, partitions=3)
        with txbroker.atomic(database, broker, mode="outbox", wait="commit") as tx:
            tx.send(topic, b"1", key=b"a", headers={"h": b"x"})
            for partition in range(3):
                tx.send(other, b"%d" % partition, partition=partition)
        [message] = broker.read(topic, 0, 0)
        assert (message.key, message.value, dict(message.headers)) == (b"a", b"1", {"h": b"x"})
        assert [broker.read(other, part, 0)[0].value for part in range(3)] == [b"0", b"1", b"2"]


class TestChoosing:
    def test_a_block_that_only_sends_asks_the_broker_for_nothing(self, database, broker, topic):
        tx = send(database, broker, topic, 1, mode="auto")
        assert tx.xid.format_id == 0x746F

    def test_two_phase_can_be_said(self, database, broker, topic):
        tx = send(database, broker, topic, 1, mode="two-phase", wait="commit")
        assert broker.outcome(tx.xid).state is State.COMMITTED
        assert tx.xid.format_id == 0x7462

    def test_a_block_that_has_received_is_two_phase(self, database, broker, topic):
        broker.send(topic, b"1")
        with txbroker.atomic(database, broker) as tx:
            assert tx.receive(topic, "group", timeout=10).value == b"1"
            tx.send(topic, b"2")
        assert tx.xid.format_id == 0x7462

    def test_a_block_beyond_the_bound_is_two_phase(self, database, broker, topic):
        with txbroker.atomic(database, broker, outbox_bytes=1000, wait="commit") as tx:
            tx.send(topic, bytes(600))
            tx.send(topic, bytes(600))
        assert tx.xid.format_id == 0x7462
        assert len(broker.read(topic, 0, 0)) == 2

    def test_one_large_message_is_two_phase(self, database, broker, topic):
        with txbroker.atomic(database, broker, wait="commit") as tx:
            tx.send(topic, bytes(900_000))
            tx.send(topic, bytes(900_000))
        assert [len(message.value) for message in broker.read(topic, 0, 0)] == [900_000, 900_000]

    def test_outbox_refuses_what_cannot_go_through_it(self, open_database, database, broker, topic):
        broker.send(topic, b"1")

        def receive():
            with txbroker.atomic(database, broker, mode="outbox") as tx:
                execute(database, "INSERT INTO orders VALUES (1)")
                tx.receive(topic, "group", timeout=10)
                tx.send(topic, b"2")

        with pytest.raises(errors.Misuse, match="cannot go through the outbox: it has received"):
            receive()
        assert numbers(open_database) == []
        with (
            pytest.raises(errors.Misuse, match="outbox_bytes = 10"),
            txbroker.atomic(database, broker, mode="outbox", outbox_bytes=10) as tx,
        ):
            tx.send(topic, bytes(11))

    @pytest.mark.parametrize(
        ("choices", "error"),
        [
            ({"mode": "both"}, errors.WrongValue),
            ({"mode": 1}, errors.WrongType),
            ({"outbox_bytes": 0}, errors.WrongValue),
            ({"outbox_bytes": 1 << 30}, errors.WrongValue),
            ({"max_backlog": 5}, errors.WrongType),
            ({"on_refused": "drop"}, errors.WrongValue),
        ],
    )
    def test_impossible_arguments_are_refused(self, lite, broker, choices, error):
        with pytest.raises(error, match="nothing was done"):
            txbroker.atomic(lite, broker, **choices)


class TestBothModes:
    def test_a_two_phase_block_comes_after_what_its_connection_has_left(self, open_database, broker, topic):
        for first in range(0, 10, 2):
            with contextlib.closing(
                open_database()
            ) as database:  # each time its stream may not be claimed yet
                send(database, broker, topic, first)
                send(database, broker, topic, first + 1, mode="two-phase", wait="commit")
        assert all_of(broker, topic) == list(range(10))

    def test_a_row_that_is_refused_for_ever_keeps_no_two_phase_block_from_coming_after_it(
        self, postgresql, rows, shared_broker, broker, topic
    ):
        gone = f"{topic}-gone"
        broker.create_topic(gone)
        broker.send(gone, b"0")  # the program knows the topic
        with txbroker.connect(shared_broker.address) as operator:
            operator.delete_topic(gone)
        send(rows, broker, gone, 1)
        send(rows, broker, topic, 2, mode="two-phase", wait="commit")
        assert all_of(broker, topic) == [2]
        assert len(rows_of(postgresql.connect, "txbroker_outbox_refused")) == 1


class TestBrokerAway:
    """The database goes on while the broker is down."""

    def test_blocks_commit_and_arrive_when_it_is_back(self, open_database, database, mortal_broker):
        with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
            broker.create_topic("orders")
            send(database, broker, "orders", 0, wait="commit")
            mortal_broker.kill()
            for number in range(1, 50):
                send(database, broker, "orders", number)
            assert len(numbers(open_database)) == 50
            assert broker.resolver.status.undelivered >= 49
            mortal_broker.start()
            has_come(broker, "orders", *range(50))
            is_empty(open_database)

    def test_what_is_beyond_the_memory_is_read_from_the_table(self, open_database, database, mortal_broker):
        with txbroker.connect(mortal_broker.address, timeout=30.0, max_buffered=2000) as broker:
            broker.create_topic("orders")
            send(database, broker, "orders", 0, wait="commit")
            mortal_broker.kill()
            for number in range(1, 250):
                send(database, broker, "orders", number)
            mortal_broker.start()
            has_come(broker, "orders", *range(250))
            send(database, broker, "orders", 250)
            has_come(broker, "orders", *range(251))
            is_empty(open_database)

    def test_a_stream_that_was_never_claimed_is_read_from_the_table(self, open_database, mortal_broker):
        with (
            txbroker.connect(mortal_broker.address, timeout=30.0) as broker,
            contextlib.closing(open_database()) as one,
            contextlib.closing(open_database()) as other,
        ):
            broker.create_topic("orders")
            send(one, broker, "orders", 0, wait="commit")
            mortal_broker.kill()
            for number in range(1, 20):
                send(other, broker, "orders", number)
            mortal_broker.start()
            for number in range(20, 40):
                send(other, broker, "orders", number)
            has_come(broker, "orders", *range(40))
            is_empty(open_database)

    def test_a_backlog_that_is_full_refuses_blocks_before_they_commit(
        self, open_database, database, mortal_broker
    ):
        bounds = txbroker.Backlog(rows=3)
        with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
            broker.create_topic("orders")
            send(database, broker, "orders", 0, wait="commit", max_backlog=bounds)
            mortal_broker.kill()
            for number in range(1, 4):
                send(database, broker, "orders", number, max_backlog=bounds)
            with pytest.raises(errors.BacklogFull, match="3 blocks are committed and not delivered"):
                send(database, broker, "orders", 4, max_backlog=bounds)
            with pytest.raises(errors.BacklogFull):
                send(database, broker, "orders", 4, max_backlog=txbroker.Backlog(bytes=1))
            with pytest.raises(errors.BacklogFull):
                send(database, broker, "orders", 4, max_backlog=txbroker.Backlog(age=0.0))
            assert sorted(numbers(open_database)) == [0, 1, 2, 3]
            mortal_broker.start()
            has_come(broker, "orders", 0, 1, 2, 3)


class TestStreams:
    def test_blocks_of_one_connection_have_one_stream_in_order(self, lite, broker, topic):
        found = [send(lite, broker, topic, number).xid.global_id.split(b"-") for number in range(3)]
        assert len({stream for _, stream, _ in found}) == 1
        assert [number for _, _, number in found] == [b"1", b"2", b"3"]

    def test_the_next_connection_has_the_stream_of_one_that_is_gone(self, open_database, broker, topic):
        before = len(streams_of(broker))
        for number in range(5):
            with contextlib.closing(open_database()) as database:
                send(database, broker, topic, number, wait="commit")
            del database
            gc.collect()
        assert len(streams_of(broker)) == before + 1
        assert all_of(broker, topic) == list(range(5))

    def test_two_connections_at_once_have_streams_of_their_own(self, open_database, broker, topic):
        with contextlib.closing(open_database()) as one, contextlib.closing(open_database()) as other:
            first = send(one, broker, topic, 1, wait="commit").xid.global_id.split(b"-")[1]
            second = send(other, broker, topic, 2, wait="commit").xid.global_id.split(b"-")[1]
        assert first != second

    def test_closing_delivers_deletes_and_releases(
        self, open_database, database, shared_broker, broker, topic
    ):
        before = set(streams_of(broker))
        with txbroker.connect(shared_broker.address, timeout=30.0) as own:
            for number in range(10):
                send(database, own, topic, number)
        assert all_of(broker, topic) == list(range(10))
        assert rows_of(open_database) == []
        assert set(streams_of(broker)) <= before

    def test_the_interpreters_end_delivers(self, postgresql, rows, shared_broker, broker, topic):
        program = (
            "import sys, txbroker, psycopg\n"
            "database, broker = psycopg.connect(sys.argv[1]), txbroker.connect(sys.argv[2])\n"
            "for number in range(20):\n"
            "    with txbroker.atomic(database, broker, mode='outbox') as tx:\n"
            "        tx.send(sys.argv[3], b'%d' % number)\n"
        )
        command = [sys.executable, "-c", program, postgresql.url, shared_broker.address, topic]
        subprocess.run(command, check=True, timeout=60)
        assert all_of(broker, topic) == list(range(20))
        assert rows_of(postgresql.connect) == []


class TestOutcomes:
    def test_a_block_that_has_committed_is_known_by_its_xid(self, database, broker, topic):
        tx = send(database, broker, topic, 1)
        assert broker.wait_outcome(tx.xid) is State.COMMITTED

    def test_another_connection_can_be_asked(self, database, shared_broker, broker, topic):
        tx = send(database, broker, topic, 1)
        with txbroker.connect(shared_broker.address, timeout=30.0) as other:
            assert other.wait_outcome(tx.xid) is State.COMMITTED
            assert other.outcome(tx.xid).state is State.COMMITTED

    def test_a_table_that_the_process_does_not_know_is_refused(self, database, broker, topic):
        tx = send(database, broker, topic, 1)
        unknown = txbroker.Xid(tx.xid.format_id, b"0123456789abcdef" + tx.xid.global_id[16:], tx.xid.branch)
        with pytest.raises(errors.Misuse, match="begin a block"):
            broker.wait_outcome(unknown)


def test_nothing_is_left_after_many_threads(open_database, broker, topic):
    failures = []

    def work(first):
        try:
            with contextlib.closing(open_database()) as database:
                for number in range(first, first + 20):
                    send(database, broker, topic, number)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    eventually(lambda: len(all_of(broker, topic)) >= 80)
    found = all_of(broker, topic)
    assert sorted(found) == sorted(n for t in range(4) for n in range(100 * t, 100 * t + 20))
    for thread in range(4):
        mine = [each for each in found if each // 100 == thread]
        assert mine == sorted(mine)
    is_empty(open_database)
