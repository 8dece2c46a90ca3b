"""Test programs that work on while the broker is away for long: their memory is bounded, and all arrives."""

import contextlib
import gc
import sqlite3
import tracemalloc

import pytest

import txbroker
from tests.databases.outbox.scene import is_empty
from tests.databases.outbox.workers import everything
from tests.support.waiting import eventually
from txbroker.databases.outbox.streams import Streams

pytestmark = pytest.mark.slow

BUFFERED = 50_000


@pytest.mark.parametrize("blocks", [2000, pytest.param(20_000, marks=pytest.mark.deep)])
def test_blocks_without_a_broker_take_no_more_memory_than_is_allowed_and_all_arrive_in_order(
    sqlite, lite, mortal_broker, blocks
):
    with txbroker.connect(mortal_broker.address, timeout=30.0, max_buffered=BUFFERED) as broker:
        broker.create_topic("orders")

        def send(first, last):
            for number in range(first, last):
                with txbroker.atomic(lite, broker, mode="outbox") as tx:
                    tx.send("orders", b"%d" % number)

        send(0, 50)
        eventually(lambda: broker.resolver.status.undelivered == 0)
        mortal_broker.kill()
        send(50, 500)
        streams: Streams = next(iter(broker.resolver._charges.values())).streams
        gc.collect()
        tracemalloc.start()
        try:
            send(500, blocks)
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert streams.held <= BUFFERED
        assert grown < 2 * BUFFERED + 400_000, grown
        assert broker.resolver.status.undelivered == blocks - 50
        mortal_broker.start()
        eventually(lambda: broker.resolver.status.undelivered == 0)
        assert everything(broker, "orders") == list(range(blocks))
        send(blocks, blocks + 5)
        eventually(lambda: broker.resolver.status.undelivered == 0)
        assert everything(broker, "orders") == list(range(blocks + 5))
        is_empty(lambda: sqlite3.connect(sqlite))
        assert streams.held == 0


def test_connections_that_come_and_go_leave_no_streams_behind(sqlite, lite, broker, topic):
    for number in range(100):
        with (
            contextlib.closing(sqlite3.connect(sqlite)) as database,
            txbroker.atomic(database, broker, mode="outbox") as tx,
        ):
            tx.send(topic, b"%d" % number)
        del database
        gc.collect(0)
    streams = next(iter(broker.resolver._charges.values())).streams
    assert len(streams.all) == 1
    assert len(streams._holders) <= 1
    eventually(lambda: everything(broker, topic) == list(range(100)))
