"""What a client holds that is not answered yet is bounded, whatever the broker does: here it is stopped, slow or dead.

Seen to fail: with the bound counted in batches instead of bytes; without an end to waiting for one that takes nothing.
"""

import asyncio
import os
import signal
import time

import pytest

import txbroker
from tests.broker_process import BrokerProcess
from tests.client.rig import Rig, add
from tests.client.scripted_broker import ScriptedBroker
from txbroker import errors
from txbroker.client import asyncio as client_asyncio
from txbroker.client.promise import start as without_pump
from txbroker.commands import Send

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
    held = {batch for lane in rig.producer._lanes.values() for batch in lane.batches()}
    assert sum(batch.size for batch in held) == rig.producer.buffered


def test_room_is_made_by_every_way_a_batch_may_end(broker):
    rig = Rig(broker, max_buffered=BOUND)
    rig.run(rig.producer.route("t"))
    rig.cut()
    filled(rig, BOUND)
    room = rig.producer.room()
    rig.wait(31)  # nobody to send to: they end
    assert room.done
    assert rig.producer.buffered == 0
    rig.connect()
    filled(rig, BOUND)
    room = rig.producer.room()
    rig.pump()
    assert room.done
    assert rig.producer.buffered == 0


def test_who_waits_for_room_does_not_wait_for_what_lingers(broker):
    bound = BOUND // 2
    rig = Rig(broker, max_buffered=bound, linger=20.0, batch_bytes=BOUND)
    count = filled(rig, bound)
    rig.pump()
    assert broker.values(1) == []
    room = rig.producer.room()
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
        os.kill(process.process.pid, how)
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
            os.kill(process.process.pid, signal.SIGCONT)
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
        os.kill(process.process.pid, signal.SIGSTOP)
        futures = [asyncio.ensure_future(connection.send("t", MESSAGE)) for _ in range(500)]
        await asyncio.sleep(0)
        assert connection._producer.buffered <= BOUND + len(MESSAGE) + 100
        ended = await asyncio.gather(*futures, return_exceptions=True)
        os.kill(process.process.pid, signal.SIGCONT)
        assert {type(each) for each in ended} <= {
            errors.BufferFull, errors.RequestTimedOut, errors.OutcomeUnknown, errors.ConnectionUnavailable,
        }  # fmt: skip
        assert any(type(each) is errors.BufferFull for each in ended)
        await connection.send("t", b"after")

    with BrokerProcess(tmp_path / "data") as process:
        asyncio.run(main(process))
