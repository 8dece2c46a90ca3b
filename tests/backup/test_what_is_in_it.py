"""Test that a backup has users, rules and the archive of outcomes, in a checkpoint and above it, and keeps its pace."""

from __future__ import annotations

import pytest

from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.pace import AT_ONCE, Pace
from journal.backup.restoring import restore
from journal.constants import KIB, MIB
from journal.folds.access import AccessFold
from journal.folds.table import client_folds
from journal.recovery.start import recover
from journal.testing import MemoryFilesystem
from tests.backup.backup_scene import backed_up, clock, lived_in, restored
from tests.server.test_first_user import CONFIG, broker_on, made
from tests.support.engine_room import Room
from tests.transactions.archive_scene import ON, ended, room_with_topic


@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_users_and_rules_are_in_it(is_in_checkpoint):
    source, backups, target = MemoryFilesystem(), MemoryFilesystem(), MemoryFilesystem()
    made(source)
    engine = broker_on(source).engine
    if is_in_checkpoint:
        engine.housekeeping.checkpoint_inline()
    make_backup(source, backups, EngineHold(engine), clock())
    restore(backups, target, clock(), settings=CONFIG.journal)
    folds = client_folds()
    recover(target, clock(), CONFIG.journal, folds)
    [before] = [fold for fold in engine.folds if isinstance(fold, AccessFold)]
    [after] = [fold for fold in folds if isinstance(fold, AccessFold)]
    assert list(after.users) == ["admin"]
    assert list(after.snapshot()) == list(before.snapshot())
    assert after.is_on


@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_the_archive_of_outcomes_is_in_it_and_goes_on(is_in_checkpoint):
    room, backups = room_with_topic(), MemoryFilesystem()
    for each in ("one", "two"):
        room.begin((2, b"v")).prepare(each).commit().sync()
    if is_in_checkpoint:
        room.flush()
        room.checkpoint()
    expected = ended(room)
    assert len(expected) == 2
    backed_up(room, backups)
    disk, _ = restored(backups)
    after = Room(disk, settings=ON)
    assert ended(after) == expected
    after.begin((2, b"v")).prepare("three").commit().sync()
    assert len(ended(after)) == 3


class Watch:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("rate", [64 * KIB, MIB])
def test_no_more_bytes_are_read_in_a_second_than_the_rate_says(rate):
    room, backups, watch = lived_in(), MemoryFilesystem(), Watch()
    pace = Pace(rate, clock=watch, sleep=watch.sleep)
    made = make_backup(room.inner, backups, EngineHold(room.engine), clock(), pace, verify=True)
    assert pace.bytes > 2 * made.manifest.bytes, "what was read again counts, too"
    assert watch.now == pytest.approx(pace.bytes / rate, rel=0.01)
    watch.now = 0.0
    pace = Pace(rate, clock=watch, sleep=watch.sleep)
    restore(backups, MemoryFilesystem(), clock(), pace=pace, settings=CONFIG.journal)
    assert watch.now == pytest.approx(pace.bytes / rate, rel=0.01)
    assert pace.bytes >= 2 * made.manifest.bytes
    assert AT_ONCE <= MIB, "a second's bytes are not read at once"
