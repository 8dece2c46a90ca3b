"""Test workers whose handler fails: messages come again in their order, and are given up as the group's policy says."""

import asyncio
import contextlib
import random
import sqlite3
import threading

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from tests.worker.scene import PATIENCE, fill, position, reached, running, values
from txbroker import RetryPolicy, errors
from txbroker.client.asyncio import connect as asyncio_connect

pytestmark = pytest.mark.slow

SOON = RetryPolicy(attempts=4, pause=0.02, longest=0.04)


@pytest.fixture
def sqlite(tmp_path):
    path = tmp_path / "rows.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
    return path


def of_sqlite(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        return sorted(number for (number,) in database.execute("SELECT number FROM orders"))


class TestUntilItSucceeds:
    def test_what_comes_again_does_not_wait_behind_all_that_is_read_ahead(self, broker, topic):
        """It comes a few fetches later, and what a worker reads ahead is bounded."""
        for _ in range(3000):
            broker.send_async(topic, b"x" * 1000)
        broker.flush()
        handled = []

        def handle(message):
            handled.append(message.offset)
            threading.Event().wait(0.001)
            if message.offset == 5 and not message.attempts:
                raise ZeroDivisionError("not yet")

        broker.work(topic, topic, handle, retry=SOON, follow=False).run()
        assert sorted(handled) == sorted([*range(3000), 5])
        assert handled.index(5, 6) < 1000

    @pytest.mark.parametrize("transaction", [None, "broker", "sqlite"])
    def test_it_comes_again_with_its_attempts_counted(self, broker, topic, transaction, sqlite, caplog):
        fill(broker, topic, 20)
        seen = []

        def handle(message, *more):
            if message.offset == 7:
                seen.append(message.attempts)
            if transaction == "sqlite":
                more[1].execute("INSERT INTO orders VALUES (?)", (message.offset,))
            if message.offset == 7 and len(seen) < 3:
                raise ZeroDivisionError("not yet")

        opens = (
            (lambda: sqlite3.connect(sqlite, timeout=PATIENCE)) if transaction == "sqlite" else transaction
        )
        broker.work(topic, topic, handle, concurrency=3, transaction=opens, retry=SOON, follow=False).run()
        assert seen == [0, 1, 2]
        assert position(broker, topic) == 20
        if transaction == "sqlite":
            assert of_sqlite(sqlite) == list(range(20))
        assert "offset 7 failed, attempt 1: ZeroDivisionError: not yet" in caplog.text
        assert "offset 7 failed, attempt 2: ZeroDivisionError: not yet" in caplog.text

    def test_why_it_failed_is_kept(self, broker, topic):
        fill(broker, topic, 2)

        def handle(message):
            raise ZeroDivisionError("poison")

        with running(broker.work(topic, topic, handle, retry=RetryPolicy(pause=60.0))):
            eventually(lambda: len(broker.parked(topic)) == 2)
        assert {(each.attempts, each.why) for each in broker.parked(topic)} == {
            (1, "ZeroDivisionError: poison")
        }


class TestLastAttempt:
    @pytest.mark.parametrize("transaction", [None, "broker"])
    def test_it_goes_to_the_dead_letters_and_all_others_are_handled(self, broker, topic, transaction):
        fill(broker, topic, 20)
        tried = []

        def handle(message, *more):
            if message.offset % 10 == 5:
                tried.append(message.offset)
                raise ZeroDivisionError("poison")

        broker.work(
            topic, topic, handle, concurrency=3, transaction=transaction, retry=SOON, follow=False
        ).run()
        assert sorted(tried) == [5] * 4 + [15] * 4
        eventually(lambda: position(broker, topic) == 20)
        assert values(broker, f"{topic}.dead") == [5, 15]

    def test_it_is_dropped(self, broker, topic):
        fill(broker, topic, 3)
        tried = []

        def handle(message):
            tried.append(message.offset)
            assert message.offset != 1

        policy = RetryPolicy(attempts=2, pause=0.0, longest=0.0, ending="drop")
        broker.work(topic, topic, handle, retry=policy, follow=False).run()
        assert sorted(tried) == [0, 1, 1, 2]
        assert position(broker, topic) == 3
        assert f"{topic}.dead" not in {each.name for each in broker.topics()}

    def test_it_stops_its_key_until_an_operator_lets_it_go_on(self, broker, topic):
        fill(broker, topic, 6, key=lambda number: b"a" if number % 2 else b"b")
        mended, handled = threading.Event(), []

        def handle(message):
            if message.offset == 1 and not mended.is_set():
                raise ZeroDivisionError
            handled.append(message.offset)

        policy = RetryPolicy(attempts=1, ending="stop")
        with running(broker.work(topic, topic, handle, concurrency=2, retry=policy)):
            eventually(lambda: sorted(handled) == [0, 2, 4] and broker.parked(topic))
            [stopped] = broker.parked(topic)
            assert (stopped.offset, stopped.stopped) == (1, True)
            mended.set()
            broker.retry_parked(topic, topic, 0, [1])
            eventually(lambda: position(broker, topic) == 6)
        assert [offset for offset in handled if offset % 2] == [1, 3, 5]


class TestOrder:
    @pytest.mark.parametrize("order", ["key", "partition"])
    def test_what_is_behind_it_waits_and_other_keys_go_on(self, broker, topic, order):
        fill(broker, topic, 30, key=lambda number: b"%d" % (number % 3))
        handled, failures = [], [3, 3, 9]

        def handle(message):
            if message.offset in failures:
                failures.remove(message.offset)
                raise ZeroDivisionError
            handled.append(message.offset)

        broker.work(
            topic, topic, handle, concurrency=4, order=order, retry=RetryPolicy(pause=0.2), follow=False
        ).run()
        of_key = [offset for offset in handled if offset % 3 == 0]
        assert of_key == list(range(0, 30, 3))
        assert len(handled) == 30
        if order == "partition":
            assert handled == list(range(30))
        else:
            assert handled.index(29) < handled.index(3)
        assert position(broker, topic) == 30

    def test_of_a_batch_only_the_failed_one_and_those_behind_it_come_again(self, broker, topic):
        broker.create_topic(f"{topic}-out")
        fill(broker, topic, 20, key=lambda number: None if number < 10 else b"%d" % (number % 2))
        calls, failures = [], [7, 12, 12, 12, 12]

        def handle(messages, tx):
            calls.append([message.offset for message in messages])
            for message in messages:
                tx.send(f"{topic}-out", message.value)
                if message.offset in failures:
                    failures.remove(message.offset)
                    raise ZeroDivisionError

        worker = broker.work(
            topic, topic, handle, transaction="broker", batch=10, retry=RetryPolicy(pause=0.2), follow=False
        )
        worker.run()
        assert values(broker, f"{topic}-out") == list(range(20))
        assert position(broker, topic) == 20
        with broker.consume(f"{topic}-out", follow=False) as consumer:
            sent = [int(message.value) for message in consumer]
        for rest in (0, 1):
            of_key = [number for number in sent if number >= 10 and number % 2 == rest]
            assert of_key == sorted(of_key)

    @pytest.mark.parametrize("transaction", [None, "broker"])
    @pytest.mark.parametrize("seed", range(3))
    def test_random_failures_change_neither_order_nor_number(self, broker, topic, transaction, seed):
        draw = random.Random(seed)
        order, batch = draw.choice(["key", "partition"]), draw.choice([1, 1, 4])
        broker.alter_topic(topic, partitions=2)
        for number in range(300):
            broker.send_async(topic, b"%d" % number, key=b"%d" % draw.randrange(20), partition=number % 2)
        broker.flush()
        lock, handled, failing = (
            threading.Lock(),
            [],
            {number for number in range(300) if draw.random() < 0.1},
        )

        def handle(messages, *more):
            some = messages if batch > 1 else [messages]
            numbers = [int(message.value) for message in some]
            with lock:
                for number in numbers:
                    if number in failing:
                        if draw.random() < 0.6:
                            failing.discard(number)
                        raise ZeroDivisionError
                handled.extend(
                    (message.partition, message.key, number)
                    for message, number in zip(some, numbers, strict=True)
                )

        broker.work(
            topic, topic, handle, concurrency=8, order=order, batch=batch, transaction=transaction, follow=False,
            retry=RetryPolicy(attempts=1000, pause=0.01 * (seed % 2), longest=0.05),
        ).run()  # fmt: skip
        assert sorted(number for *_, number in handled) == list(range(300))
        by_lane = {}
        for partition, key, number in handled:
            lane = (partition, key) if order == "key" else partition
            by_lane.setdefault(lane, []).append(number)
        assert all(numbers == sorted(numbers) for numbers in by_lane.values())
        assert all(each.lag == 0 for each in broker.describe_group(topic).partitions)


class TestPolicies:
    def test_another_one_than_the_groups_ends_it_and_nothing_is_handled(self, broker, topic):
        fill(broker, topic, 1)
        broker.alter_group(topic, retry=RetryPolicy(attempts=2))
        handled = []
        with pytest.raises(errors.GroupSettingsConflict, match="2 attempts"):
            broker.work(topic, topic, handled.append, retry=RetryPolicy(attempts=3), follow=False).run()
        assert handled == []

    def test_the_groups_own_holds_and_is_the_usual_one_if_it_has_none(self, broker, topic):
        broker.work(topic, topic, lambda message: None, follow=False).run()
        assert broker.describe_group(topic).retry == RetryPolicy()
        broker.alter_group(topic, retry=RetryPolicy(attempts=2))
        broker.work(topic, topic, lambda message: None, follow=False).run()
        assert broker.describe_group(topic).retry == RetryPolicy(attempts=2)

    def test_without_one_it_ends_and_nothing_is_counted(self, broker, topic):
        fill(broker, topic, 1)
        with pytest.raises(ZeroDivisionError):
            broker.work(topic, topic, lambda message: 1 / 0, retry=False).run()
        assert broker.parked(topic) == []


class TestObstacles:
    def test_while_the_broker_is_away_the_report_waits(self, tmp_path):
        with (
            BrokerProcess(tmp_path / "data") as process,
            txbroker.connect(process.address, timeout=1.0) as connection,
        ):
            connection.create_topic("in")
            fill(connection, "in", 5)
            failed, attempts = threading.Event(), []

            def handle(message):
                if message.offset == 2:
                    attempts.append(message.attempts)
                    if len(attempts) == 1:
                        process.kill()
                        failed.set()
                        raise ZeroDivisionError

            worker = connection.work("in", "g", handle, retry=RetryPolicy(pause=0.05), max_wait=0.1)
            with running(worker):
                reached(failed)
                threading.Event().wait(1.5)
                process.start()
                eventually(lambda: position(connection, "g") == 5)
            assert attempts == [0, 1]

    def test_a_stop_while_it_waits_leaves_the_message_unfinished(self, tmp_path):
        with (
            BrokerProcess(tmp_path / "data") as process,
            txbroker.connect(process.address, timeout=0.3) as connection,
        ):
            connection.create_topic("in")
            fill(connection, "in", 1)
            failed = threading.Event()

            def handle(message):
                process.kill()
                failed.set()
                raise ZeroDivisionError

            with running(connection.work("in", "g", handle, max_wait=0.1)):
                reached(failed)
                threading.Event().wait(0.5)
            process.start()
            eventually(lambda: connection.ping() is None)
            assert connection.parked("g") == []

    def test_what_another_has_finished_meanwhile_is_no_failure(self, broker, topic):
        fill(broker, topic, 3, key=lambda number: b"a")
        seen = []

        def handle(message):
            seen.append(message.offset)
            if message.offset == 0:
                broker.skip(topic, topic, 0, [0])
                raise ZeroDivisionError

        broker.work(topic, topic, handle, follow=False).run()
        assert seen == [0, 1, 2]
        assert position(broker, topic) == 3

    def test_a_partition_that_was_lost_meanwhile_is_the_others(self, broker, url, topic):
        fill(broker, topic, 3)
        failing, go_on = threading.Event(), threading.Event()

        def handle(message):
            failing.set()
            reached(go_on)
            raise ZeroDivisionError

        worker = broker.work(topic, topic, handle, partitions=[0])
        with running(worker, stops=False) as raised:
            reached(failing)
            with broker.consume(topic, topic, partitions=[0]) as other:
                assert len(other.poll(PATIENCE)) == 3
                go_on.set()
        assert [type(error) for error in raised] == [errors.GenerationFenced]
        assert broker.parked(topic) == []

    def test_too_many_that_wait_hold_the_worker_up_and_lose_nothing(self, tmp_path):
        with (
            BrokerProcess(tmp_path / "data", "max_parked=2") as process,
            txbroker.connect(process.address, timeout=10.0) as connection,
        ):
            connection.create_topic("in")
            fill(connection, "in", 12)
            counted = []

            def handle(message):
                counted.append(message.offset)
                if message.attempts == 0 and counted.count(message.offset) == 1:
                    raise ZeroDivisionError

            connection.work(
                "in", "g", handle, retry=RetryPolicy(attempts=100, pause=0.1), concurrency=4, follow=False
            ).run()
            assert {counted.count(offset) for offset in range(12)} == {2}
            assert position(connection, "g") == 12

    def test_of_a_batch_whose_failed_message_another_has_finished_the_others_are_handled(self, broker, topic):
        fill(broker, topic, 4, key=lambda number: b"a")
        calls = []

        def handle(messages):
            calls.append([message.offset for message in messages])
            if messages[0].offset == 0:
                if len(messages) == 1:
                    broker.skip(topic, topic, 0, [0])
                raise ZeroDivisionError

        broker.work(topic, topic, handle, batch=4, follow=False).run()
        assert calls[1:] == [[0], [1, 2, 3]]
        assert position(broker, topic) == 4

    @pytest.mark.parametrize("transaction", [None, "broker"])
    def test_after_a_stop_nothing_behind_an_unhandled_message_of_a_batch_is_handled(
        self, broker, topic, transaction
    ):
        fill(broker, topic, 4, key=lambda number: b"a")
        calls = []

        def handle(messages, *more):
            calls.append([message.offset for message in messages])
            if len(messages) > 1:
                raise ZeroDivisionError
            worker.stop()
            raise errors.StorageUnavailable("away")

        worker = broker.work(topic, topic, handle, batch=4, transaction=transaction)
        worker.run()
        assert calls == [[0, 1, 2, 3], [0]]
        assert position(broker, topic) == 0


class TestHandover:
    """A partition is asked back from a worker in which messages of it have failed."""

    @pytest.mark.parametrize("order", ["key", "partition", None])
    def test_it_moves_while_all_that_was_handed_out_waits(self, broker, url, topic, order):
        broker.alter_topic(topic, partitions=2)
        for number in range(4):
            broker.send(topic, b"", key=b"%d" % number, partition=number % 2)
        choices = {"order": order, "concurrency": 2, "retry": RetryPolicy(pause=3.0)}

        def fails_first(message):
            assert message.attempts

        with (
            txbroker.connect(url, timeout=60.0) as elsewhere,
            running(broker.work(topic, topic, fails_first, **choices)) as raised,
        ):
            eventually(lambda: len(broker.parked(topic)) == (2 if order == "partition" else 4))
            with running(elsewhere.work(topic, topic, fails_first, **choices)) as raised_too:
                eventually(
                    lambda: len({each.member for each in broker.describe_group(topic).partitions}) == 2
                )
                eventually(lambda: all(each.lag == 0 for each in broker.describe_group(topic).partitions))
        assert raised == raised_too == []

    def test_from_a_consumer_too(self, broker, url, topic):
        broker.alter_topic(topic, partitions=2)
        for number in range(2):
            broker.send(topic, b"", partition=number)
        with txbroker.connect(url) as elsewhere, broker.consume(topic, topic) as one:
            for _ in range(2):
                one.retry(one.poll(PATIENCE), after=60)
            with elsewhere.consume(topic, topic) as two:
                eventually(
                    lambda: (
                        one.poll(0.01),
                        two.poll(0.01),
                        len({each.member for each in broker.describe_group(topic).partitions}) == 2,
                    )[-1]
                )

    @pytest.mark.parametrize(
        ("order", "batch", "transaction"), [("partition", 1, None), ("key", 4, "broker")]
    )
    def test_it_moves_if_one_fails_meanwhile_and_others_are_behind_it(
        self, broker, url, topic, order, batch, transaction
    ):
        broker.alter_topic(topic, partitions=2)
        for number in range(6):
            broker.send(topic, b"", key=b"a", partition=number % 2)
        begun, go_on, handled = threading.Barrier(3), threading.Event(), []

        def handle(messages, *more):
            some = messages if batch > 1 else [messages]
            if not go_on.is_set():
                begun.wait(PATIENCE)
                reached(go_on)
            assert some[0].offset or some[0].attempts
            handled.extend((message.partition, message.offset) for message in some)

        choices = {
            "order": order,
            "batch": batch,
            "transaction": transaction,
            "retry": RetryPolicy(pause=0.1),
        }
        with (
            txbroker.connect(url, timeout=60.0) as elsewhere,
            running(broker.work(topic, topic, handle, concurrency=2, **choices)) as raised,
        ):
            begun.wait(PATIENCE)
            with running(elsewhere.work(topic, topic, handle, **choices)) as raised_too:
                eventually(lambda: any(each.revoking for each in broker.describe_group(topic).partitions))
                go_on.set()
                eventually(lambda: all(each.lag == 0 for each in broker.describe_group(topic).partitions))
        assert raised == raised_too == []
        for partition in range(2):
            assert [offset for index, offset in handled if index == partition] == [0, 1, 2]


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("transaction", [None, "broker"])
def test_one_that_comes_again_is_handled_though_all_others_are_too_far_ahead(
    tmp_path, transaction, concurrency
):
    """And none of these counts as failed that its handler has not failed with."""
    with (
        BrokerProcess(tmp_path / "data", "max_ahead=64") as process,
        txbroker.connect(process.address, timeout=30.0) as connection,
    ):
        connection.create_topic("in")
        fill(connection, "in", 150)
        failures = []

        def handle(message, *more):
            if (message.offset == 0 and message.attempts < 2) or (
                message.offset == 90 and not message.attempts
            ):
                failures.append(message.offset)
                raise ZeroDivisionError

        connection.work(
            "in", "g", handle, concurrency=concurrency, transaction=transaction, follow=False,
            retry=RetryPolicy(attempts=3, pause=0.3, longest=0.3),
        ).run()  # fmt: skip
        assert position(connection, "g") == 150
        assert failures.count(0) == 2
        assert "in.dead" not in {each.name for each in connection.topics()}


def test_on_asyncio_too(url, broker, topic):
    fill(broker, topic, 60, key=lambda number: b"%d" % (number % 5))
    handled, failures = [], [5, 5, 10, 33]

    async def handle(message):
        await asyncio.sleep(0)
        if message.offset in failures:
            failures.remove(message.offset)
            raise ZeroDivisionError
        handled.append(message.offset)

    async def work():
        async with await asyncio_connect(url) as connection:
            await connection.work(topic, topic, handle, concurrency=8, retry=SOON, follow=False).run()

    asyncio.run(work())
    assert sorted(handled) == list(range(60))
    for rest in range(5):
        of_key = [offset for offset in handled if offset % 5 == rest]
        assert of_key == sorted(of_key)
