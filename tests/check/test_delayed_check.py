"""Test what a verification proves of delayed exchanges: what went on is what had waited, and each has its queue."""

from __future__ import annotations

from typing import Any

import pytest

from journal.check import Level, verify
from journal.errors import InvalidFrame
from journal.formats import frame
from journal.formats.checkpoint import Checkpoint, write_checkpoint
from journal.formats.filenames import checkpoint_file
from journal.records.queue_entries import is_waiting_queue
from journal.records.record import Published, Run
from journal.records.run_checks import check_runs
from journal.testing import MemoryFilesystem
from journal.walks.checkpoint_walk import checkpoints
from tests.broker.queues.delayed.delays import Delays
from tests.broker.queues.scene import SECOND, pass_time
from txbroker.queues.publishing import Publishing


def told(disk: MemoryFilesystem, level: Level = Level.DEEP) -> list[str]:
    return [str(each) for each in verify(disk, level) if not each.harmless]


def work(scene: Delays) -> MemoryFilesystem:
    """Let two messages go on in two queues, and two wait, one of them in the journal alone; return the files."""
    scene.queue("other")
    scene.bind("d", "k", "other")
    scene.wait(1_000, b"due", b"due too")
    scene.wait(60_000, b"waits")
    scene.room.flush()
    pass_time(scene, 2 * SECOND)
    scene.room.flush()
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.wait(60_000, b"in the journal")
    scene.room.engine.sync()
    return scene.room.filesystem.kill_clone()


@pytest.mark.parametrize("level", Level)
def test_a_sound_directory_has_nothing_to_tell(level: Level) -> None:
    assert told(work(Delays()), level) == []


def test_a_message_that_is_not_that_of_its_envelope_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Publishing.publish_due

    def another(self: Publishing, address: int, unsent: Any, ids: list[int]) -> None:
        first, count, frames, also = unsent.runs[0]
        unsent.runs[0] = (
            first,
            count,
            frame.encode(b"another", 1, b"k") + frames[frame.walk(frames).__next__()[1] :],
            also,
        )
        publish(self, address, unsent, ids)

    monkeypatch.setattr(Publishing, "publish_due", another)
    scene = Delays()
    [finding] = told(work(scene))
    assert f"what was placed through the exchange at {scene.to}, behind 0 others (checksum " in finding
    assert "is not the message at offset 0 of log 0 of the schedule" in finding


def test_a_delayed_exchange_without_its_queue_is_told() -> None:
    disk = work(Delays())
    *_, old = [each for each in checkpoints(disk) if isinstance(each, Checkpoint)]
    folds: dict[str, Any] = dict(old.folds)
    head, *rows = folds["queues"]
    kept = [each for each in rows if not is_waiting_queue(each.name if hasattr(each, "name") else "")]
    assert len(kept) == len(rows) - 1
    folds["queues"] = [type(head)(head.next_exchange, head.exchanges, head.queues - 1), *kept]
    disk.unlink(checkpoint_file(old.header.lsn))
    write_checkpoint(disk, old.header, {each: iter(rows) for each, rows in folds.items()}, old.stores)
    assert any("exchange 'd' lets messages wait, and has no queue for them" in each for each in told(disk))


@pytest.mark.parametrize("ids", [[8], [8, 8], [8, 16, 24]])
def test_a_publication_is_of_as_many_messages_as_were_due(ids: list[int]) -> None:
    runs = [Run(3, 2, 0, 0)]
    check_runs(Published(-15, 0, 2, runs, [], 1, ids=[8, 16]))
    with pytest.raises(InvalidFrame, match=r"it says 2 messages, and that \d scheduled ones were due"):
        check_runs(Published(-15, 0, 2, runs, [], 1, ids=ids))
