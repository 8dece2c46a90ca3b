"""Test records that do not follow those before them, with valid checksums: the audit names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.audit.claims.facts import What
from tests.spark.audit.audited import audited
from tests.support.builders import number
from tests.support.damage.forged_records import REFUSED, TOLD, UNREADABLE, commit, forged, prepare, scene
from tests.support.engine_room import contents

OTHER = number(901)


def written(path: Path, filesystem) -> Path:
    """Put a directory in memory on the disk."""
    for name, data in contents(filesystem).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    for name in ("checkpoints", "partitions", "staged"):
        (path / name).mkdir(exist_ok=True)
    return path


def violations(path: Path):
    return [fact for fact in audited(path) if fact.what == What.VIOLATION]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_sound_records_of_these_kinds_are_proven(tmp_path, checkpoint):
    at = scene(checkpoint)
    sound = forged(at, commit((1, 3), (2, 1), (1, 4)), prepare(1, 2, number=OTHER))
    assert violations(written(tmp_path, sound)) == []


@pytest.mark.sampled(20)
@pytest.mark.parametrize("what", [*REFUSED, *UNREADABLE, *TOLD])
def test_what_does_not_follow_the_records_before_it_is_a_violation(tmp_path, what):
    at = scene(checkpoint=True)
    forge = (REFUSED | UNREADABLE | TOLD)[what]
    found = violations(written(tmp_path, forged(at, *forge(at))))
    assert any(fact.kind == "journal" and fact.path.startswith("journal/") for fact in found), found
