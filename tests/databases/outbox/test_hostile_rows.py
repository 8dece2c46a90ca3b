"""Test rows that no program has left so: none is delivered, others are, and the operator is told."""

import contextlib
import logging
import math
import os
import secrets
import sqlite3

import pytest

import txbroker
from tests.databases.orders import execute
from tests.databases.outbox.scene import all_of, has_come, is_empty, rows_of, send
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.producer.batch import Batch
from txbroker.databases.outbox import payload

pytestmark = pytest.mark.slow

REFUSED = "txbroker_outbox_refused"


def new_stream(first):
    """A stream that is listed first, or last."""
    return first + secrets.token_hex(16)[1:]


def put(opens, broker, stream, number, data):
    with contextlib.closing(opens()) as database:
        mark = "?" if isinstance(database, sqlite3.Connection) else "%s"
        marks = ", ".join([mark] * 4)
        cursor = database.cursor()
        cursor.execute(
            f"INSERT INTO txbroker_outbox (stream, number, broker, messages) VALUES ({marks})",
            (stream, number, broker.identity, data),
        )
        cursor.close()
        database.commit()


def payload_of(broker, topic, value, **fields):
    """What a program would have left, but for some of its fields."""
    queue = broker.run(broker._producer.route(topic)).queues[0]
    batch = Batch(math.inf)
    batch.add(value, 1, None, None, 0)
    frames = fields.get("frames", queue.seal(batch))
    run = payload.Run(fields.get("named", topic), fields.get("partition", 0), 1, len(frames))
    return payload.pack(0, [run] * fields.get("runs", 1), frames * fields.get("runs", 1))


HOSTILE = {
    "nothing": lambda *_: b"",
    "noise": lambda *_: os.urandom(100),
    "another version": lambda *scene: b"\x09" + payload_of(*scene, b"1")[1:],
    "more than it lists": lambda *scene: payload_of(*scene, b"1") + b"x",
    "a partition that is not there": lambda *scene: payload_of(*scene, b"1", partition=7),
    "a partition below 0": lambda *scene: payload_of(*scene, b"1", partition=-1),
    "noise for frames": lambda *scene: payload_of(*scene, b"1", frames=os.urandom(60)),
    "no frames": lambda *scene: payload_of(*scene, b"1", frames=b""),
    "a cut frame": lambda *scene: payload_of(*scene, b"1", frames=bytes(30)),
    "a topic that is not there": lambda *scene: payload_of(*scene, b"1", named="nowhere"),
    "an impossible topic": lambda *scene: payload_of(*scene, b"1", named="no/where \x00"),
    "a topic without a name": lambda *scene: payload_of(*scene, b"1", named=""),
    "a topic with a long name": lambda *scene: payload_of(*scene, b"1", named="x" * 100_000),
    "twenty thousand runs": lambda _, topic: payload.pack(0, [payload.Run(topic, 0, 1, 0)] * 20_000, b""),
    "more than a request": lambda *scene: payload_of(*scene, b"1", frames=os.urandom(5 << 20)),
    "sizes beyond 64 bits": lambda _, topic: payload.pack(0, [payload.Run(topic, 0, 1, 1 << 63)] * 2, b""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_row_that_cannot_be_delivered_is_moved_and_what_follows_it_is_delivered(
    postgresql, rows, broker, topic, kind, caplog
):
    caplog.set_level(logging.ERROR, "txbroker.outbox")
    first, last = new_stream("0"), new_stream("f")
    put(postgresql.connect, broker, first, 1, HOSTILE[kind](broker, topic))
    put(postgresql.connect, broker, first, 2, payload_of(broker, topic, b"2"))
    put(postgresql.connect, broker, last, 1, payload_of(broker, topic, b"3"))
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        found = resolver.resolve().outbox
        assert (found.delivered, found.refused) == (2, 1)
        assert resolver.resolve().is_quiet
    assert all_of(broker, topic) == [2, 3]
    assert rows_of(postgresql.connect) == []
    assert rows_of(postgresql.connect, REFUSED) == [(first, 1)]
    assert f"number 1 of stream {first} is refused for ever" in caplog.text


NAMES = {
    "no hexadecimal digits": ("!" * 32, 1),
    "too short": ("00ff", 1),
    "nothing": ("", 1),
    "capitals": ("0A" * 16, 1),
    "spaces": ("00 " * 10, 1),
    "number 0": (new_stream("0"), 0),
    "a number below 0": (new_stream("0"), -5),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_no_stream_is_told_and_left_and_others_are_delivered(postgresql, rows, broker, topic, name):
    stream, number = NAMES[name]
    put(postgresql.connect, broker, stream, number, payload_of(broker, topic, b"1"))
    put(postgresql.connect, broker, new_stream("f"), 1, payload_of(broker, topic, b"2"))
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        for _ in range(2):
            with pytest.raises(errors.InvalidSetting, match="neither delivered nor deleted"):
                resolver.resolve()
    assert all_of(broker, topic) == [2]
    assert rows_of(postgresql.connect) == [(stream, number)]


def test_the_highest_number_is_a_number(postgresql, rows, broker, topic):
    put(postgresql.connect, broker, new_stream("0"), (1 << 63) - 1, payload_of(broker, topic, b"1"))
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        assert resolver.resolve().outbox.delivered == 1
    assert all_of(broker, topic) == [1]


def test_a_value_of_another_type_keeps_no_other_stream_from_going_on(sqlite, lite, broker, topic):
    """SQLite takes any value in any column."""
    first = new_stream("0")
    lite.execute("INSERT INTO txbroker_outbox VALUES (?, 1, ?, 'text')", (first, broker.identity))
    lite.commit()
    opens = lambda: sqlite3.connect(sqlite)  # noqa: E731
    put(opens, broker, new_stream("f"), 1, payload_of(broker, topic, b"1"))
    with txbroker.Resolver(opens, broker) as resolver, pytest.raises(TypeError):
        resolver.resolve()
    assert all_of(broker, topic) == [1]


def test_the_background_goes_on_beside_hostile_rows_and_tells_of_them(
    open_database, database, broker, topic, monkeypatch
):
    monkeypatch.setattr("txbroker.databases.outbox.lookout.LOOK", 0.05)
    send(database, broker, topic, 1, wait="commit")
    put(open_database, broker, "nonsense", 1, b"")
    left = new_stream("f")
    put(open_database, broker, left, 1, payload_of(broker, topic, b"2"))
    broker.resolver.interval = 0.1
    has_come(broker, topic, 1, 2)
    eventually(lambda: "'nonsense'" in broker.resolver.status.failure)
    for number in range(3, 20):
        send(database, broker, topic, number)
    has_come(broker, topic, *range(1, 20))
    eventually(lambda: len(rows_of(open_database)) == 1)
    with contextlib.closing(open_database()) as operator:
        execute(operator, "DELETE FROM txbroker_outbox WHERE stream = 'nonsense'")
        operator.commit()
    eventually(lambda: not broker.resolver.status.failure)
    is_empty(open_database)


def test_ten_thousand_rows_are_delivered_once_and_in_order(sqlite, lite, broker, topic):
    stream, packed = new_stream("0"), [payload_of(broker, topic, b"%d" % number) for number in range(10)]
    lite.executemany(
        "INSERT INTO txbroker_outbox VALUES (?, ?, ?, ?)",
        [(stream, number + 1, broker.identity, packed[number % 10]) for number in range(10_000)],
    )
    lite.commit()
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
        assert resolver.resolve().outbox.delivered == 10_000
    found, at = [], 0
    while some := broker.read(topic, 0, at):
        found += [int(message.value) for message in some]
        at = some[-1].offset + 1
    assert found == [number % 10 for number in range(10_000)]
    assert rows_of(lambda: sqlite3.connect(sqlite)) == []
