"""The Python client with rows that can be compressed: they are sent and read back plain, by zstd and by lz4.

The rows look like those of a table of flights, about 100 bytes each. No row is repeated within many batches.
"""

from __future__ import annotations

import random
import time
from itertools import cycle, islice
from pathlib import Path

import txbroker
from benchmarks import figures
from benchmarks.harness.load import Tally
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from benchmarks.runs import TOPIC, Measured, Sample, check, fresh_broker, timed

DISTINCT = 20_000


def rows() -> list[bytes]:
    """Return the rows, which are the same in every run: numbers, codes and times, like a year of flights."""
    chance = random.Random(2013)
    places = [bytes(chance.choices(range(65, 91), k=3)) for _ in range(100)]
    return [
        b"2013,%d,%d,%d,%d,%d,%b,%d,N%05d,%b,%b,%d,2013-01-01T%02d:%02d:00Z,on time,economy"
        % (
            number // 1700 + 1, number // 60 % 28 + 1, chance.randrange(2400), chance.randrange(2400),
            chance.randrange(-20, 200), chance.choice((b"UA", b"AA", b"B6", b"DL", b"EV")), chance.randrange(6000),
            chance.randrange(4000), chance.choice(places), chance.choice(places), chance.randrange(100, 5000),
            chance.randrange(24), chance.randrange(60),
        )
        for number in range(DISTINCT)
    ]  # fmt: skip


def measured(folder: Path, seconds: float, compression: str | None) -> Measured:
    """Send rows for half of the time, then read all of them back; return the processor time of both sides, too."""
    found, sample = figures.ROWS[compression or "plain"], Sample()
    values = rows()
    size = sum(map(len, values)) / len(values)
    with (
        fresh_broker(folder, sample) as server,
        txbroker.connect(f"tcp:127.0.0.1:{server.port}", compression=compression) as client,
        Peer(server.port) as peer,
    ):
        peer.create_topic(TOPIC)
        sent, usage = timed(server, lambda: _send(client, values, seconds / 2))
        check(peer, sent.completed)
        read, reading = timed(server, lambda: _read(client, values, sent.completed))
        [topic] = client.topics([TOPIC])
        sample |= {
            found.sent: sent.rate,
            found.read: read.rate,
            found.bytes: topic.partitions[0].bytes / (sent.completed * size) * 100,
            found.sender: usage.generator / sent.rate * 1e6,
            found.broker: usage.cost,
            found.reader: reading.generator / read.rate * 1e6,
        }
    return sample, usage


def _send(client: txbroker.Connection, values: list[bytes], seconds: float) -> Tally:
    tally, source = Tally(), cycle(values)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for value in islice(source, 1000):
            client.send_async(TOPIC, value)
        tally.completed += 1000
    client.flush()
    tally.seconds = time.perf_counter() - began
    return tally


def _read(client: txbroker.Connection, values: list[bytes], count: int) -> Tally:
    tally = Tally()
    began = time.perf_counter()
    for message, value in zip(client.consume(TOPIC, follow=False), cycle(values), strict=False):
        if message.value != value:
            raise UnexpectedAnswer(f"offset {message.offset} is {message.value!r}, not {value!r}")
        tally.completed += 1
    tally.seconds = time.perf_counter() - began
    if tally.completed != count:
        raise UnexpectedAnswer(f"{tally.completed} rows were read, {count} sent")
    return tally


def plain(folder: Path, seconds: float) -> Measured:
    return measured(folder, seconds, None)


def zstd(folder: Path, seconds: float) -> Measured:
    return measured(folder, seconds, "zstd")


def lz4(folder: Path, seconds: float) -> Measured:
    return measured(folder, seconds, "lz4")


LOADS = {"rows": plain, "rows-zstd": zstd, "rows-lz4": lz4}
