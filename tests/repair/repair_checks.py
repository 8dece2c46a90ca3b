"""The checks that must pass after any repair."""

from __future__ import annotations

from journal import check as inspect
from journal.check import Level
from journal.repair import diagnose
from tests.repair.repair_scene import all_files, held, only_what_was_named_is_missing, repaired
from tests.support.engine_room import Room


def damages(filesystem):
    return [f for f in inspect.verify(filesystem, Level.DEEP) if not f.harmless]


def is_repaired(disk, filesystem):
    """Repair, and check all that must be true after any repair; return (diagnosis, what is held, the start)."""
    diagnosis = repaired(filesystem)
    assert damages(filesystem) == []
    assert diagnose(filesystem).is_sound, "a second repair would find something to do"
    room = Room(filesystem)
    after = held(room)
    only_what_was_named_is_missing(disk[1], after, diagnosis)
    return diagnosis, after, room


def newest(filesystem, suffix):
    return sorted(path for path in all_files(filesystem) if path.endswith(suffix))[-1]


def oldest_log(filesystem):
    return min(path for path in all_files(filesystem) if path.endswith(".log"))
