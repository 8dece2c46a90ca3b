"""Test that a coordinator whose log was restored from a backup rolls nothing back that may have been decided since.

At each moment of a commit a backup is made. The original goes on, decides, and cannot tell one of the participants;
then the backup takes its place.
"""

import pytest

from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.restoring import restore
from journal.testing import ManualClock, MemoryFilesystem
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from tests.coordinator.memory import Died, Unreachable
from tests.coordinator.test_stepping import COMMIT, World, attempt
from txbroker import errors
from txbroker.coordinator import Coordinator
from txbroker.coordinator.decision_log import SETTINGS, DecisionLog

CLOCK = ManualClock(wall=1_800_000_000_000_000)


class SetBack(World):
    """At ``cut`` a backup of the log is made; from then on ``away`` hears no second phase, nor a rollback."""

    def __init__(self, cut, away):
        super().__init__()
        self.cut, self.away = cut, away
        self.backups = MemoryFilesystem()
        self.is_made = False
        self.dies_at = ""
        self.is_dead = False

    def at(self, moment):
        if self.moments == self.cut:
            hold = EngineHold(self.coordinator._log._log.engine)
            make_backup(self.filesystem, self.backups, hold, CLOCK)
            self.is_made = True
        super().at(moment)
        if self.dies_at and (self.is_dead or moment == self.dies_at):
            self.is_dead = True
            raise Died(moment)
        if self.is_made and moment in (f"before commit {self.away}", f"before rollback {self.away}"):
            raise Unreachable(moment)

    def be_restored(self, as_copy=False):
        self.coordinator = None
        self.filesystem = MemoryFilesystem()
        restore(
            self.backups,
            self.filesystem,
            ManualClock(wall=1_800_000_000_000_000),
            as_copy=as_copy,
            settings=SETTINGS,
        )
        self.away, self.cut = "", -1
        self.start()


@pytest.mark.parametrize("away", ["a", "c"])
@pytest.mark.parametrize("cut", range(COMMIT))
def test_wherever_the_log_is_set_back_to_no_branch_is_ended_otherwise_than_the_others(cut, away):
    world = SetBack(cut, away)
    world.start()
    told = attempt(world)
    assert (told, world.is_made) == ("committed", True)
    world.be_restored()
    done = world.coordinator.resolve()
    assert done.rolled_back == []
    waiting = world.participants[away].prepared
    if waiting:  # the decision came after the cut: a person looks what the others have
        assert list(done.failed) == [away]
        assert "may have been decided since" in done.failed[away]
        connection = world.participants[away].connect()
        connection.tpc_commit(next(iter(waiting)))
    world.coordinator.resolve()
    assert world.check(told) is True
    assert world.coordinator.in_doubt() == []


def test_what_a_restored_coordinator_begins_is_rolled_back_without_a_decision_as_ever():
    world = SetBack(0, "")
    world.start()
    attempt(world)
    world.be_restored()
    world.dies_at = "after prepare b"
    for one in world.participants.values():
        one.committed.clear()
    assert attempt(world) is None
    assert any(one.prepared for one in world.participants.values())
    world.dies_at = ""
    world.die(None)
    world.start()
    done = world.coordinator.resolve()
    assert done.rolled_back
    assert done.failed == {}
    assert not any(one.prepared for one in world.participants.values())


def test_a_copy_of_a_log_of_decisions_decides_nothing():
    world = SetBack(3, "")
    world.start()
    attempt(world)
    with pytest.raises(errors.InvalidSetting, match="a copy of a coordinator's log decides nothing"):
        world.be_restored(as_copy=True)
    with pytest.raises(errors.InvalidSetting):
        DecisionLog(world.filesystem, ManualClock())


def test_a_running_coordinator_makes_a_backup_of_its_directory(tmp_path):
    with Coordinator(tmp_path / "log", {}, start=False) as coordinator:
        name = coordinator.back_up(tmp_path / "backups")
        identity = coordinator.identity
    assert name.startswith("000001-")
    assert (tmp_path / "backups").stat().st_mode & 0o777 == 0o700
    restore(OSFilesystem(tmp_path / "backups"), OSFilesystem(tmp_path / "again"), SystemClock())
    with Coordinator(tmp_path / "again", {}, start=False) as coordinator:
        assert coordinator.identity == identity
        assert coordinator._log.restored > 65536
