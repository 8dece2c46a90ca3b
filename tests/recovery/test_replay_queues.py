"""Test that a replay of what went through exchanges makes the state that it had, whatever of it is in a checkpoint."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from journal.engine.engine import Engine
from tests.broker.queues.scene import framed
from tests.support.queue_work import QueueWork


def state(engine: Engine) -> dict[str, Any]:
    """All rows that a checkpoint would have, but for clocks and starts, and all messages of each log."""
    rows = {
        fold.name: msgspec.msgpack.decode(msgspec.msgpack.encode(list(fold.snapshot())))
        for fold in engine.folds
        if fold.name not in ("starts", "schedule", "catalog")
    }
    logs = {number: store.read(0, 1 << 24) for number, store in engine.catalog.stores.items()}
    topics = [topic.name for topic in engine.catalog.topics.values()]
    return rows | {"logs": logs, "topics": topics}


@pytest.mark.parametrize("sliced", [False, True], ids=["at once", "in slices"])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_a_start_has_what_there_was(checkpoints: int, sliced: bool) -> None:
    work = QueueWork(sliced=sliced)
    work.round(b"1")
    work.in_doubt()
    for number in range(checkpoints):
        work.round(b"%d" % (number + 2))
        work.checkpoint()
    work.round(b"9")
    work.queue("later")
    work.bind("topic", "l", "later")
    before = state(work.room.engine)
    work.room.filesystem = work.files()
    work.room.start()
    after = state(work.room.engine)
    for name, rows in before.items():
        assert after[name] == rows, name


def test_a_start_has_what_there_was_where_one_commit_of_many_alike_is_for_two_queues() -> None:
    work = QueueWork()
    for number in range(60):
        work.one_phase((work.topic, framed("x" if number != 30 else "x.y", b"%d" % number)))
    before = state(work.room.engine)
    work.room.filesystem = work.files()
    work.room.start()
    work.peer = work.room.peer()
    assert state(work.room.engine) == before
    assert (len(work.taken(work.a)), work.taken(work.b)) == (60, [b"30"])
