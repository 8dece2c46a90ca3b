"""Test that what a client holds unanswered is bounded, with a broker that is stopped, slow or dead.

Seen to fail: with the bound counted in batches instead of bytes; without an end to waiting for one that takes nothing.
"""

import asyncio
import os
import signal
import threading
import time

import pytest

import txbroker
from tests.client.rig import Rig, add
from tests.client.scripted_broker import ScriptedBroker, ScriptedServer
from tests.support.broker_process import BrokerProcess
from txbroker import errors
from txbroker.client import asyncio as client_asyncio
from txbroker.client.core.promise import start as without_pump
from txbroker.wire.messages import Refused, Send

MESSAGE = b"x" * 10_000
BOUND = 1 << 20


@pytest.fixture
def broker():
    return ScriptedBroker()


def filled(rig, bound):
    """Send until there is no room; how many went in."""
    count = 0
    while not rig.producer.full:
        rig.send(MESSAGE)
        assert rig.producer.buffered <= bound + len(MESSAGE) + 36
        count += 1
    return count


@pytest.mark.parametrize("choices", [{}, {"batch_bytes": 0}, {"linger": 5.0}, {"compression": "zstd"}])
def test_the_bound_is_of_the_bytes_of_messages_however_they_are_sent(broker, choices):
    rig = Rig(broker, max_buffered=BOUND, **choices)
    rig.run(rig.producer.route("t"))
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    assert 100 < filled(rig, BOUND) < 110
    held = {batch for queue in rig.producer._all_queues() for batch in queue.batches()}
    assert sum(batch.size for batch in held) == rig.producer.buffered


def test_room_is_made_by_every_way_a_batch_may_end(broker):
    rig = Rig(broker, max_buffered=BOUND)
    rig.run(rig.producer.route("t"))
    rig.cut()
    filled(rig, BOUND)
    room = rig.producer.room()
    rig.producer.join_room(room)
    rig.wait(31)  # nobody to send to: they end
    assert room.done
    rig.producer.leave_room(room)
    assert rig.producer.buffered == 0
    rig.connect()
    filled(rig, BOUND)
    room = rig.producer.room()
    rig.producer.join_room(room)
    rig.pump()
    assert room.done
    rig.producer.leave_room(room)
    assert rig.producer.buffered == 0


def test_who_waits_for_room_does_not_wait_for_what_lingers(broker):
    bound = BOUND // 2
    rig = Rig(broker, max_buffered=bound, linger=20.0, batch_bytes=BOUND)
    count = filled(rig, bound)
    rig.pump()
    assert broker.values(1) == []
    room = rig.producer.room()
    rig.producer.join_room(room)
    rig.pump()
    assert room.done
    assert len(broker.values(1)) == count


def test_a_transaction_over_the_bound_raises_if_it_is_told_to_and_goes_on(broker):
    rig = Rig(broker, max_buffered=BOUND, when_full="raise")
    transaction = rig.transaction()
    rig.run(add(transaction, b"first"))
    count = 1
    for _ in range(500):
        promise = without_pump(add(transaction, MESSAGE))
        if not promise.done or promise.error is not None:
            break
        count += 1
    assert promise.done, "it does not wait"
    with pytest.raises(errors.BufferFull, match="was not taken, the transaction goes on"):
        promise.result()
    assert BOUND < rig.core.output_bytes < BOUND + (128 << 10)
    rig.pump()
    rig.run(transaction.commit())
    assert len(broker.values(1)) == count


def test_a_transaction_does_not_wait_for_ever_for_a_broker_that_takes_no_bytes(broker):
    rig = Rig(broker, max_buffered=BOUND, timeout=30.0)
    transaction = rig.transaction()
    rig.run(add(transaction, b"first"))
    promise = None
    while promise is None or promise.done:
        promise = without_pump(add(transaction, MESSAGE))
    for _ in range(3):
        rig.now += 10.0
        rig.core.tick()
    assert rig.core.abort == "the broker has taken no bytes for 30.0 s"
    rig.cut(rig.core.abort)
    assert promise.done, "who has waited goes on, and learns it with the next call at the latest"
    with pytest.raises(errors.TransactionRolledBack, match="has taken no bytes"):
        rig.run(add(transaction, MESSAGE))


def test_a_broker_that_takes_bytes_slowly_is_not_given_up(broker):
    rig = Rig(broker, max_buffered=BOUND, timeout=30.0)
    transaction = rig.transaction()
    rig.run(add(transaction, b"first"))
    for _ in range(5):
        promise = None
        while promise is None or promise.done:
            promise = without_pump(add(transaction, MESSAGE))
        rig.now += 20.0
        rig.core.tick()
        rig.pump()
        assert promise.done
    rig.wait(100.0)
    assert not rig.core.abort
    rig.run(transaction.commit())


@pytest.mark.parametrize("bound", [0, 1, 9_000])
def test_a_message_larger_than_the_bound_goes_alone(broker, bound):
    rig = Rig(broker, max_buffered=bound, when_full="raise")
    rig.run(rig.producer.route("t"))
    for count in (1, 2, 3):
        assert not rig.producer.full
        rig.send(MESSAGE)
        assert rig.producer.full
        with pytest.raises(errors.BufferFull, match=f"bound is {bound}; this message was not taken"):
            rig.producer.check_room()
        rig.pump()
        assert len(broker.values(1)) == count


# -- many that wait for room at once ------------------------------------------------------------------


class Crowd:
    """Threads that each send their messages in order, with no room for more than one or two; what came of them."""

    SIZE, EACH = 20, 10

    def __init__(self, connection):
        self.connection = connection
        self.futures, self.errors = [], []
        self.threads = [threading.Thread(target=self._send, args=(name,)) for name in range(self.SIZE)]
        for thread in self.threads:
            thread.start()

    def _send(self, name):
        for number in range(self.EACH):
            try:
                future = self.connection.send_async("t", b"%d-%d " % (name, number) + MESSAGE, partition=0)
            except errors.TxBrokerError as error:
                self.errors.append(error)
            else:
                self.futures.append(future)

    def join(self):
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads), "somebody waits for ever"

    def check(self, values):
        """All are stored, once, each thread's in its order."""
        self.join()
        assert not self.errors
        assert all(future.exception() is None for future in self.futures)
        stored = [tuple(map(int, value.split()[0].split(b"-"))) for value in values() if b"-" in value]
        assert len(stored) == self.SIZE * self.EACH
        for name in range(self.SIZE):
            assert [number for sender, number in stored if sender == name] == list(range(self.EACH))
        assert self.connection._producer.buffered == 0


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


@pytest.mark.slow
def test_all_who_wait_for_room_get_it_once_the_broker_takes_messages_again(broker, server):
    refused = threading.Event()

    def refuse(request, data):
        if type(request) is not Send or until < time.monotonic():
            return None
        refused.set()
        return Refused(request.correlation, "MemoryExhausted", "try later")

    broker.before, until = refuse, time.monotonic() + 1.0
    with txbroker.connect(server.url, max_buffered=BOUND // 50) as connection:
        crowd = Crowd(connection)
        assert refused.wait(10)
        crowd.check(lambda: broker.values(1))


@pytest.mark.slow
def test_all_who_wait_for_room_are_told_in_time_if_the_broker_takes_no_more(broker, server):
    broker.before = lambda request, data: (
        Refused(request.correlation, "MemoryExhausted", "try later") if type(request) is Send else None
    )
    with txbroker.connect(server.url, max_buffered=BOUND // 50, timeout=0.5) as connection:
        begun = time.monotonic()
        crowd = Crowd(connection)
        crowd.join()
        assert time.monotonic() - begun < 2 * 0.5 * Crowd.EACH
        assert {type(error) for error in crowd.errors} == {errors.BufferFull}
        told = [type(future.exception()) for future in crowd.futures]
        assert errors.MemoryExhausted in told
        in_doubt = [error for error in told if error is not errors.MemoryExhausted]
        assert set(in_doubt) <= {errors.RequestTimedOut, errors.OutcomeUnknown}, "those just on their way"
        assert in_doubt or not connection._producer.buffered
        # One whose answer was lost goes again until the broker says what came of it, and has its room until then.
        broker.before = lambda request, data: None
        deadline = time.monotonic() + 30
        while connection._producer.buffered:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert len(broker.values(1)) <= len(in_doubt)


# -- a real one that dies, and one that is stopped ----------------------------------------------------


def until_full(connection, futures):
    """Send until there is no room, or 220 times; whether there was none, and how long one send has taken."""
    waited = 0.0
    for number in range(len(futures), 220):
        begun = time.monotonic()
        try:
            futures.append(connection.send_async("t", b"%d" % number + MESSAGE))
        except errors.BufferFull:
            return True, max(waited, time.monotonic() - begun)
        waited = max(waited, time.monotonic() - begun)
        assert connection._producer.buffered <= BOUND + len(MESSAGE) + 100
    return False, waited


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "stopped"])
@pytest.mark.parametrize("when_full", ["wait", "raise"])
def test_no_more_is_held_for_a_broker_that_is_gone_and_every_message_is_accounted_for(
    tmp_path, how, when_full
):
    choices = {"max_buffered": BOUND, "when_full": when_full, "timeout": 1.5, "compression": "lz4"}
    with (
        BrokerProcess(tmp_path / "data") as process,
        txbroker.connect(process.address, **choices) as connection,
    ):
        connection.create_topic("t")
        futures = [connection.send_async("t", b"%d" % number + MESSAGE) for number in range(20)]
        connection.flush()
        os.kill(process.pid, how)
        full, waited = until_full(connection, futures)
        if when_full == "raise":
            assert full
            assert waited < 1.0, "at once"
        else:  # room is made again, for a moment, by what could not be sent in its time
            assert waited >= 1.0
        for future in futures[20:]:
            assert isinstance(future.exception(), (errors.OutcomeUnknown, errors.ConnectionUnavailable))
        if how is signal.SIGKILL:
            process.kill()
            process.start()
        else:
            os.kill(process.pid, signal.SIGCONT)
        connection.send("t", b"last" + MESSAGE)
        stored = [message.value.split(b"x")[0] for message in connection.consume("t", follow=False)]
        known = [b"%d" % number for number in range(20)]
        assert (stored[:20], stored[-1]) == (known, b"last")
        middle = [int(value) for value in stored[20:-1]]
        unsent = {
            n
            for n, future in enumerate(futures)
            if isinstance(future.exception(), errors.ConnectionUnavailable)
        }
        assert middle == sorted(set(middle)), "in order, and none twice"
        assert not unsent & set(middle), "what was said not to be sent has not been"


@pytest.mark.slow
def test_on_a_loop_the_bound_holds_over_a_stopped_broker_too(tmp_path):
    async def main(process):
        choices = {"max_buffered": BOUND, "timeout": 1.5}
        connection = await client_asyncio.connect(process.address, **choices)
        try:
            await over_a_stop(process, connection)
        finally:
            await connection.close()

    async def over_a_stop(process, connection):
        await connection.create_topic("t")
        await connection.send("t", b"first")
        os.kill(process.pid, signal.SIGSTOP)
        futures = [asyncio.ensure_future(connection.send("t", MESSAGE)) for _ in range(500)]
        await asyncio.sleep(0)
        assert connection._producer.buffered <= BOUND + len(MESSAGE) + 100
        ended = await asyncio.gather(*futures, return_exceptions=True)
        os.kill(process.pid, signal.SIGCONT)
        assert {type(each) for each in ended} <= {
            errors.BufferFull, errors.RequestTimedOut, errors.OutcomeUnknown, errors.ConnectionUnavailable,
        }  # fmt: skip
        assert any(type(each) is errors.BufferFull for each in ended)
        await connection.send("t", b"after")

    with BrokerProcess(tmp_path / "data") as process:
        asyncio.run(main(process))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "stopped"])
def test_all_who_wait_for_room_get_it_when_the_broker_is_back(tmp_path, how):
    with (
        BrokerProcess(tmp_path / "data") as process,
        txbroker.connect(process.address, max_buffered=BOUND // 50) as connection,
    ):
        connection.create_topic("t")
        connection.send("t", b"first")
        os.kill(process.pid, how)
        crowd = Crowd(connection)
        time.sleep(0.2)
        if how is signal.SIGKILL:
            process.kill()
            process.start()
        else:
            os.kill(process.pid, signal.SIGCONT)
        crowd.check(lambda: [message.value for message in connection.consume("t", follow=False)])


@pytest.mark.slow
def test_closing_ends_all_who_wait_for_room(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        connection = txbroker.connect(process.address, max_buffered=BOUND // 50)
        connection.create_topic("t")
        connection.send("t", b"first")
        os.kill(process.pid, signal.SIGSTOP)
        crowd = Crowd(connection)
        deadline = time.monotonic() + 10
        while not connection._producer.full:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises((errors.RequestTimedOut, errors.ConnectionClosed)):
            connection.close(0.5)
        crowd.join()
        os.kill(process.pid, signal.SIGCONT)
        assert len(crowd.futures) + len(crowd.errors) == Crowd.SIZE * Crowd.EACH
        assert {type(error) for error in crowd.errors} == {errors.ConnectionClosed}
        ended = {type(future.exception()) for future in crowd.futures}
        assert ended <= {errors.RequestTimedOut, errors.ConnectionClosed}
        assert connection._producer.buffered == 0


@pytest.mark.slow
def test_closing_ends_all_who_wait_for_room_on_a_loop(tmp_path):
    async def main(process):
        connection = await client_asyncio.connect(process.address, max_buffered=BOUND // 50)
        await connection.create_topic("t")
        await connection.send("t", b"first")
        os.kill(process.pid, signal.SIGSTOP)
        futures = [connection.send("t", MESSAGE) for _ in range(100)]
        with pytest.raises((errors.RequestTimedOut, errors.ConnectionClosed)):
            await connection.close(0.3)
        ended = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 10)
        os.kill(process.pid, signal.SIGCONT)
        assert {type(each) for each in ended} == {errors.RequestTimedOut, errors.ConnectionClosed}

    with BrokerProcess(tmp_path / "data") as process:
        asyncio.run(main(process))
