"""What the tests of the outbox share: its rows, the streams that the broker knows, blocks of a few messages."""

import contextlib

import txbroker
from tests.databases.orders import execute
from tests.support.waiting import eventually
from txbroker.client.operations.streams import list_streams


def rows_of(opens, table="txbroker_outbox"):
    """Stream and number of each row."""
    with contextlib.closing(opens()) as database:
        found = execute(database, f"SELECT stream, number FROM {table} ORDER BY stream, number")
        return [(str(stream), int(number)) for stream, number in found]


def streams_of(broker):
    """The streams that the broker knows, with their last numbers."""
    return {info.stream.hex(): info.last for info in broker.run(list_streams(broker.core, ""))}


def send(database, broker, topic, *values, **choices):
    """A block with one order and its messages."""
    choices.setdefault("mode", "outbox")
    with txbroker.atomic(database, broker, **choices) as tx:
        for value in values:
            execute(database, f"INSERT INTO orders VALUES ({int(value)})")
            tx.send(topic, b"%d" % value)
    return tx


def all_of(broker, topic):
    """All messages: one read may end where the segments end and the memory begins."""
    found = []
    while more := broker.read(topic, 0, found[-1].offset + 1 if found else 0):
        found += more
    return [int(message.value) for message in found]


def has_come(broker, topic, *values):
    eventually(lambda: len(all_of(broker, topic)) >= len(values))
    assert all_of(broker, topic) == list(values)


def is_empty(opens):
    eventually(lambda: not rows_of(opens))
