"""Test which file a SQLite database is: a copy is told from its original where the file system allows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import PACKAGES, ROOT
from txbroker.databases.adapters import file_identity

OWN = ["unshare", "--mount"]
"""A mount namespace; who is not root is so in it, and may mount a tmpfs there, but no image of a disk."""


def scene(folder: Path, name: str) -> dict[str, Any]:
    own = OWN if os.geteuid() == 0 else [*OWN, "--map-root-user"]
    done = subprocess.run(
        [*own, sys.executable, "-m", "tests.databases.adapters.copied_volumes", str(folder), name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        timeout=120,
        check=False,
    )
    if "CalledProcessError" in done.stderr and "'mount'" in done.stderr:
        pytest.skip(f"no such mount is allowed here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_refused(said: str) -> None:
    assert "is a copy: it was made at 'inode " in said
    assert "'txbroker resolve --database URL --adopt replacement'" in said


@pytest.mark.slow
class TestVolumes:
    def test_a_copy_on_another_volume_is_refused_though_its_inode_has_the_same_number(self, tmp_path):
        found = scene(tmp_path, "copy_on_another_tmpfs")
        assert found["same inode"]
        assert found["original"] == ""
        assert_refused(found["other"])

    def test_another_device_number_refuses_nothing(self, tmp_path):
        found = scene(tmp_path, "same_volume_on_another_device")
        assert (found["same inode"], found["same device"]) == (True, False)
        assert (found["original"], found["other"]) == ("", "")

    def test_another_file_system_is_refused_by_its_identity_alone(self, tmp_path):
        found = scene(tmp_path, "volume_of_another_identity")
        assert found["same inode"]
        first, second = (home.split() for home in found["homes"])
        assert [place for place in range(6) if first[place] != second[place]] == [3]
        assert first[2] == "fsid"
        assert found["original"] == ""
        assert_refused(found["other"])

    def test_a_copy_that_got_the_originals_inode_is_refused_by_its_birth_time_alone(self, tmp_path):
        found = scene(tmp_path, "inode_used_again")
        assert found["same inode"]
        assert_refused(found["other"])


def test_what_one_of_two_descriptions_does_not_tell_is_no_difference():
    full = "inode 5 fsid 20ed15475810eae7 born 1790000000.000000001"
    for made, here in [
        (full, full),
        ("inode 5", full),
        (full, "inode 5 born 1790000000.000000001"),
        ("", full),
    ]:
        assert not file_identity.contradicts(made, here)
    for other in (
        "inode 6",
        "inode 5 fsid 30ed15475810eae7",
        "inode 5 fsid 20ed15475810eae7 born 1790000000.000000002",
    ):
        assert file_identity.contradicts(full, other)


def test_a_file_is_described_alike_while_it_is_written_and_renamed(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1")
    described = file_identity.describe(str(path))
    path.write_bytes(b"2" * 100_000)
    moved = path.rename(tmp_path / "moved")
    os.utime(moved, (0, 0))
    assert file_identity.describe(str(moved)) == described
    assert described.startswith(f"inode {moved.stat().st_ino}")


class TestWhereLessIsTold:
    def test_a_file_system_that_gives_its_devices_number_has_no_identity(self, tmp_path, monkeypatch):
        class Numbers:
            f_fsid = os.stat(tmp_path).st_dev

        monkeypatch.setattr(os, "statvfs", lambda _: Numbers)
        assert "fsid" not in file_identity.describe(str(tmp_path))

    def test_without_statx_the_birth_time_is_left_out(self, tmp_path, monkeypatch):
        monkeypatch.setattr(file_identity.ctypes, "CDLL", lambda _: object())
        assert "born" not in file_identity.describe(str(tmp_path))

    def test_a_statx_that_fails_leaves_it_out(self, tmp_path, monkeypatch):
        class Refusing:
            @staticmethod
            def statx(*_):
                return -1

        monkeypatch.setattr(file_identity.ctypes, "CDLL", lambda _: Refusing)
        assert "born" not in file_identity.describe(str(tmp_path))
