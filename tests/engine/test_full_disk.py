"""Test a real disk that is full, or read-only: a tmpfs of a few MiB, in a mount namespace of its own.

Seen to fail: with the low-water mark not asked (ENOSPC in place of a refusal), with the ballast kept at the start (the
start itself finds no room), with the ballast not laid again.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.full_disk_process import SETTINGS, SIZE
from tests.support.repository import PACKAGES, ROOT

pytestmark = pytest.mark.slow
NAMESPACE = ["unshare", "--mount", "--map-root-user"]


@pytest.fixture(scope="module", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Some containers allow no namespaces; then only the tests on the file system in memory fill a disk up."""
    folder = tmp_path_factory.mktemp("probe")
    probe = subprocess.run(
        [*NAMESPACE, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"no mount namespace of our own, so no small disk: {probe.stderr.strip()}")


def scene(folder: Path, name: str) -> dict[str, Any]:
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.engine.full_disk_process", str(folder), name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_low_water_refuses_new_work_early_and_ending_reading_and_deleting_go_on(tmp_path):
    found = scene(tmp_path, "low_water")
    assert "nearly full" in found["refusal"]
    assert found["free"] > SETTINGS.low_water_bytes
    assert found["sent"] > 100
    assert found["read"] == found["sent"]
    assert found["topics"] == ["t"]
    assert found["prepared"] == 0
    assert found["offset after room was made"] == found["sent"] + 1


def test_a_broker_that_keeps_nothing_free_does_not_fill_the_disk_itself(tmp_path):
    found = scene(tmp_path, "fills_itself")
    assert found["failure"] == ""
    assert found["read"] == found["sent"] > 100
    assert found["free"] > 0


def test_on_a_disk_without_a_free_byte_the_start_succeeds_thanks_to_the_ballast(tmp_path):
    found = scene(tmp_path, "start_on_a_full_disk")
    assert found["free"] == 0
    assert any("the ballast file was removed" in note for note in found["notes"])
    assert not found["ballast"]
    assert found["read"] == found["sent"]
    assert "nearly full" in found["refusal"]
    assert found["offset after room was made"] == found["sent"] + 1
    assert found["ballast again"] == SETTINGS.file_bytes


def test_a_disk_that_somebody_else_fills_stops_the_engine_and_loses_nothing_acknowledged(tmp_path):
    found = scene(tmp_path, "filled_at_work")
    for said in ("failure", "refused"):
        assert "No space left on device" in found[said]
        assert "journal/" in found[said]
        assert "the next start recovers" in found[said]
    assert found["sent"] <= found["read"] <= found["sent"] + 1


def test_a_start_on_a_read_only_file_system_says_so_and_harms_nothing(tmp_path):
    found = scene(tmp_path, "read_only")
    assert found["errno"] == errno.EROFS
    assert found["file"].endswith("lock")
    assert found["read"] == found["sent"] == 3


def test_a_first_start_takes_messages_or_says_what_it_lacks(tmp_path):
    found = scene(tmp_path, "first_start")
    assert (found["offset"], found["ballast"]) == (0, SETTINGS.file_bytes)
    assert "too small" in found["refusal"]
    assert "low_water_bytes=" in found["refusal"]
    assert "file_bytes=0.2 MiB" in found["refusal"]
    assert found["files"] == ["lock"]


def test_a_start_that_has_data_and_too_little_room_goes_on_and_says_that_it_refuses_new_work(tmp_path):
    found = scene(tmp_path, "small_for_data")
    [note] = found["notes"]
    assert note.startswith("NEW WORK IS REFUSED (DiskFull): ")
    assert "low_water_bytes=" in note
    assert "nearly full" in found["refusal"]
    assert found["read"] == 1
    assert found["prepared"] == 0


def test_the_scenes_have_room_for_more_than_one_checkpoint():
    assert 3 * (SETTINGS.checkpoint_bytes + SETTINGS.file_bytes) < SIZE
