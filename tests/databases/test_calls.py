"""Hold the number of calls that the client makes for the smallest block: one INSERT, one message, warm connections."""

import contextlib
import sys
from pathlib import Path

import pytest

import txbroker
from tests.databases.orders import execute, make_tables, opener
from txbroker.client.core import core
from txbroker.databases.outbox import streams

pytestmark = pytest.mark.slow

OURS = tuple(f"{Path(txbroker.__file__).parent.parent / name}/" for name in ("txbroker", "journal"))
BLOCKS = 20
BUDGET = {
    ("two-phase", "postgresql"): 316,
    ("two-phase", "sqlite"): 385,
    ("outbox", "postgresql"): 172,
    ("outbox", "sqlite"): 240,
}
"""Calls of Python functions of txbroker and journal, on the thread of the program. Two-phase with psycopg they were 400
when a block first drove its connection itself. Those of the drivers are not counted, of which psycopg makes 110. One
more is made where an answer comes after the block has begun to wait for it: half of them on a busy machine (314).
"""


class Calls:
    """Counts the calls of our functions on this thread."""

    def __init__(self):
        self.count = 0

    def _seen(self, frame, what, argument):
        if what == "call" and frame.f_code.co_filename.startswith(OURS):
            self.count += 1

    def __enter__(self):
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


@pytest.mark.parametrize(("mode", "kind"), BUDGET)
def test_the_smallest_block_makes_no_more_calls_than_its_budget(
    request, broker, topic, mode, kind, monkeypatch
):
    """Of blocks that follow each other fast, however busy the machine is: what one leaves goes with the next."""
    monkeypatch.setattr(core, "HELD", 10.0)
    monkeypatch.setattr(streams, "JOIN_WITHIN", 10.0)
    with contextlib.closing(opener(request.getfixturevalue(kind))()) as database:
        make_tables(database)
        found = []
        for number in range(2 * BLOCKS):
            with Calls() as calls, txbroker.atomic(database, broker, mode=mode) as tx:
                execute(database, f"INSERT INTO orders VALUES ({number})")
                tx.send(topic, b"value", key=b"key")
            found.append(calls.count)
        table = next(iter(broker.resolver._charges))
        if (sent := broker.resolver.known_streams(table)) is not None:
            sent.send_held()
    median = sorted(found[BLOCKS:])[BLOCKS // 2]
    assert BUDGET[mode, kind] * 0.9 < median <= BUDGET[mode, kind], "if it is less, lower the budget"
