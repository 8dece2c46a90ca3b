"""Test that what crashes leave is no violation: removals that were undone, indexes with zeros."""

import pytest
from msgspec.structs import replace

from journal.check import Level, checkpoints, verify
from journal.formats.checkpoint import Checkpoint, write_checkpoint
from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.directory import of_finding
from spark.audit.claims.facts import What
from spark.audit.claims.log_tails import left_over
from tests.simulation import history
from tests.simulation.world import world
from tests.spark.audit.audited import audited
from tests.spark.damages.forger import newest
from tests.spark.world import World

FOUND = {
    5001: "the removal of an older checkpoint undone, and the journal does not go back to it",
    5007: "a transaction that begins with the offsets of a group",
    5033: "the removal of the first journal files undone, and not of those behind them",
    9064: "the same, and a start among them, with a transaction that was active at the checkpoint after it",
}
"""Seeds of histories in which sound directories were once taken for damaged."""


def violations(disk):
    found = [of_finding(each) for each in verify(disk, Level.DEEP, records=True)]
    sound = [each for each in checkpoints(disk) if isinstance(each, Checkpoint)]
    found += left_over(disk, sound[-1].stores if sound else ())
    return [fact for fact in found if fact.what == What.VIOLATION]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [300, 301, *range(303, 307), *FOUND])
def test_no_start_of_a_history_finds_a_violation(monkeypatch, seed):
    recover, wrong, looked = world.World._recover, [], []

    def looking(self, random):
        if self.disk.exists("journal") and self.disk.exists("checkpoints"):
            looked.append(self.disk)
            wrong.extend(violations(self.disk))
        return recover(self, random)

    monkeypatch.setattr(world, "rot", lambda *_: None)  # that is no crash
    monkeypatch.setattr(world.World, "_recover", looking)
    assert history.run(seed).problem == ""
    assert wrong == []
    assert len(looked) > 1


@pytest.mark.slow
def test_an_old_journal_file_that_is_back_keeps_nothing_from_being_compared(tmp_path):
    made = World(tmp_path / "data")
    first = min((made.path / "journal").glob("*.journal"))
    content = first.read_bytes()
    for _ in range(4):
        made.turn_over()
    made.put("orders", 0, b"sent")
    path = made.close()
    assert not first.exists()
    first.write_bytes(content)
    assert [fact for fact in audited(path) if fact.what == What.VIOLATION] == []
    old = newest(path)
    stores = [replace(each, start_offset=1) if each.topic == "orders" else each for each in old.stores]
    write_checkpoint(
        OSFilesystem(path), old.header, {name: iter(rows) for name, rows in old.folds.items()}, stores
    )
    found = [fact for fact in audited(path) if fact.what == What.VIOLATION]
    assert any("starts at offset 1, by the journal at 0" in fact.text for fact in found), found
