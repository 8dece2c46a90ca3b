"""A write as its tasks and its driver make it, without Spark, for tests that step through the protocol."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark.sink import decision
from spark.sink.branch_writer import BranchWriter
from spark.sink.branches import Write
from spark.sink.decision import TaskReport
from spark.sink.register import Extent, Register
from spark.sink.row_frames import BYTES, Columns
from txbroker.client.blocking import Connection, connect
from txbroker.client.core import url as urls
from txbroker.client.core.options import Options

TOPIC = "rows"


class Stepped(Connection):
    """A connection that calls ``before`` ahead of each thing that it asks of the broker."""

    before: Callable[[], None]

    def run(self, operation: Any, timeout: float | None = None) -> Any:
        try:
            self.before()
        except BaseException:
            operation.close()
            raise
        return super().run(operation, timeout)


def stepped(address: str, before: Callable[[], None], client: str = "stepped") -> Stepped:
    """Connected; ``before`` is called from the next operation on."""
    connection = Stepped(urls.parse(address), Options(client=client, timeout=10.0))
    connection.before = lambda: None
    connection.run(connection.core.opened(time.monotonic() + 10.0))
    connection.before = before
    return connection


def extent(lists: Sequence[Sequence[bytes]]) -> Extent:
    """What a task tells of these rows."""
    rows = sum(map(len, lists))
    return Extent(rows, sum(len(each) for some in lists for each in some), frozenset({TOPIC} if rows else ()))


def prepare(
    broker: Connection, write: Write, rows: Sequence[Sequence[bytes]], epoch: int | None = None
) -> list[TaskReport]:
    """What a task for each list of rows tells: T1 to T4, two branches each."""
    told = []
    for partition, values in enumerate(rows):
        state = Register(broker, write.name).read()
        if state.decided >= write.version:
            told.append(TaskReport(broker.identity, write, state.epoch, (), extent([values]), skipped=True))
            continue
        begun = state.epoch if epoch is None else epoch
        writer = BranchWriter(broker, write, begun, partition, branch_bytes=1, branch_seconds=60.0)
        half = len(values) // 2
        for some in (values[:half], values[half:]):
            if some:
                writer.send(Columns(TOPIC, pa.array(some, BYTES), bytes=sum(map(len, some))))
        keys = tuple(branch.key for branch in writer.finish())
        told.append(TaskReport(broker.identity, write, begun, keys, writer.extent))
    return told


def seen(address: str, topic: str = TOPIC) -> list[bytes]:
    """The values of all messages of a topic, sorted."""
    with connect(address) as broker:
        found = [message.value or b"" for message in broker.consume(topic, follow=False, start="earliest")]
    return sorted(found)


def rows(attempt: str, partitions: int, count: int) -> list[list[bytes]]:
    """Rows of an attempt that say whose they are."""
    return [[f"{attempt}-{p}-{n}".encode() for n in range(count)] for p in range(partitions)]


def flat(lists: Sequence[Sequence[bytes]]) -> list[bytes]:
    """All rows, sorted as :func:`seen` gives them."""
    return sorted(value for values in lists for value in values)


def drive(broker: Connection, write: Write, lists: Sequence[Sequence[bytes]]) -> None:
    """A whole attempt: tasks, then the driver, which aborts if it cannot commit."""
    told = prepare(broker, write, lists)
    try:
        decision.commit(broker, write, told, patience=0.0)
    except Exception:
        decision.give_up(broker, write, told, patience=0.0)
        raise


def name() -> str:
    """One for a write that no other test has."""
    return f"test-{random.getrandbits(40):010x}"
