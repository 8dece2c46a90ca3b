"""Test a real broker with far less memory than it is sent: it makes producers wait, and does not grow."""

import threading

import pytest

import txbroker
from journal.constants import MIB
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

POOL = 2 * MIB
MESSAGES = 600
VALUE = b" " * 64_000


def resident(broker):
    with open(f"/proc/{broker.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def produce(address, partition, failures):
    try:
        with txbroker.connect(address) as connection:
            promises = [
                connection.send_async("t", b"%d " % number + VALUE, partition=partition)
                for number in range(MESSAGES)
            ]
            connection.flush()
            for promise in promises:
                promise.result()
    except Exception as error:  # noqa: BLE001  (of another thread: told by the assertion below)
        failures.append(error)


def test_a_budget_that_is_used_up_slows_producers_down_loses_nothing_and_is_not_exceeded(tmp_path):
    settings = (f"pool_bytes={POOL}", f"max_request={MIB}", f"max_frame={MIB}", "pending_bytes=32MiB")
    with BrokerProcess(tmp_path / "data", *settings) as broker:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("t", partitions=3)
            before = resident(broker)
            failures = []
            producers = [
                threading.Thread(target=produce, args=(broker.address, partition, failures))
                for partition in range(3)
            ]
            for producer in producers:
                producer.start()
            used = []
            while any(producer.is_alive() for producer in producers):
                used.append(connection.status()["pool_bytes_used"])
            assert failures == []
            assert max(used) > POOL // 2, "the budget was needed"
            assert max(used) <= POOL
            assert resident(broker) - before < 3 * MESSAGES * len(VALUE) // 2, "what is sent is not held"
            for partition in range(3):
                found = connection.consume("t", partitions=[partition], follow=False)
                assert [int(message.value.split()[0]) for message in found] == list(range(MESSAGES))
        broker.stop()
