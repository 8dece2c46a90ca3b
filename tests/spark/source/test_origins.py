"""Test which transaction a message came in, by the outcome archive: however reading is cut, wherever the entry is."""

from __future__ import annotations

import pytest

from journal.records.outcome_entry import OUTCOMES_TOPIC
from spark.source.options import read_options
from spark.source.pushdown import Wanted
from spark.source.reader import read_parts
from tests.spark.damages.forger import forge, held, refold
from tests.spark.source.test_planning import planned
from tests.spark.world import World


def origins(path, **options):
    """By value of a message: its transaction and xid."""
    given = read_options({"path": str(path), "subscribe": "a,orders", **options})
    return {
        row["value"]: (row["transaction"], row["xid"])
        for task in planned(given)
        for batch in read_parts(given, ("value", "transaction", "xid"), Wanted(), task.parts)
        for row in batch.to_pylist()
    }


@pytest.fixture
def made(tmp_path):
    """A directory, and what is to be found in it."""
    world = World(tmp_path / "data")
    wanted: dict[bytes, tuple[str | None, str | None]] = {}
    for number in range(6):
        plain, one, two = (b"%s %d" % (kind, number) for kind in (b"plain", b"one", b"two"))
        world.put("a", 0, plain)
        world.among(("a", 1, b"never"), ("orders", 0, b"never"), end="rollback")
        phase = str(world.among(("orders", 0, b"other " + one), ("a", 0, one), ("a", 1, one + b"!")))
        phases = str(world.among(("a", 0, two), end="two", xid=f"x{number}"))
        wanted |= {plain: (None, None), two: (phases, f"1:x{number}:b")}
        wanted |= dict.fromkeys((b"other " + one, one, one + b"!"), (phase, None))
    return world.close(), wanted


@pytest.mark.parametrize("parts", ["1", "9"])
def test_each_message_has_the_transaction_that_it_came_in_and_no_other(made, parts):
    path, wanted = made
    assert origins(path, minPartitions=parts) == wanted


def test_an_entry_that_only_the_checkpoint_has_counts_too(made):
    path, wanted = made
    last = bytes(held(path, OUTCOMES_TOPIC)[-1].entry.frame)
    forge(path, OUTCOMES_TOPIC, 0, lambda content: content[-1].pop())
    refold(path, "archive", lambda rows: [*rows, last])
    assert origins(path) == wanted
