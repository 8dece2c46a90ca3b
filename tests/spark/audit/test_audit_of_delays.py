"""Test an audit of delayed exchanges: what waited there is claimed in the schedule, and in the queues it came to."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.formats.frame import HEADER_BYTES
from tests.broker.queues.delays import Delays
from tests.broker.queues.scene import SECOND, pass_time
from tests.spark.audit.audited import violations
from tests.spark.damages.forger import altered, holding, write
from tests.support.queue_work import on_disk


def directory(path: Path, flushed: bool) -> Delays:
    """Write the files of a broker in which a message came to two queues, one waits, and one is not scheduled yet."""
    scene = Delays()
    scene.queue("other")
    scene.bind("d", "k", "other")
    scene.wait(1_000, b"came")
    scene.wait(60_000, b"waits")
    pass_time(scene, 2 * SECOND)
    if flushed:
        scene.room.flush()
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"not scheduled")
    on_disk(scene.room.filesystem.kill_clone(), path)
    return scene


@pytest.mark.parametrize("flushed", [False, True])
def test_a_directory_with_messages_that_wait_audits_clean(tmp_path: Path, flushed: bool) -> None:
    directory(tmp_path, flushed)
    assert violations(tmp_path) == []


def test_another_message_than_went_on_is_a_violation(tmp_path: Path) -> None:
    scene = directory(tmp_path, flushed=True)
    topic = scene.room.engine.catalog.stores[scene.q].topic
    found = holding(tmp_path, topic, 0, b"came")
    data = bytes(found.entry.frame)
    write(
        tmp_path,
        found.segment,
        found.entry.position,
        altered(data, data.index(b"came", HEADER_BYTES), b"CAME"),
    )
    told = {(fact.kind, fact.topic) for fact in violations(tmp_path)}
    assert ("send", topic) in told
    assert {each for _, each in told} == {topic}
