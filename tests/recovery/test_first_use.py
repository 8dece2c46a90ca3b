"""A start takes only what is empty, or a data directory, or a half-made one: never a directory of something else."""

from __future__ import annotations

import os

import pytest

import journal
from journal.errors import ForeignDirectory
from journal.recovery.first_use import check_ours
from journal.testing import MemoryFilesystem, PowerCut
from journal.vfs.filesystem import OSFilesystem
from tests.support.engine_room import Room, contents


def refusal(path) -> str:
    """The first start there is refused, and nothing at all has changed."""
    before = sorted(path.rglob("*"))
    with pytest.raises(ForeignDirectory) as refused:
        journal.open(path)
    assert sorted(path.rglob("*")) == before
    return str(refused.value)


def test_a_directory_of_something_else_is_refused_with_some_of_its_entries_and_what_to_do(tmp_path):
    for name in ("fstab", "hosts", ".profile", "passwd", "resolv.conf", "shadow", "zshrc"):
        (tmp_path / name).touch()
    said = refusal(tmp_path)
    assert "'.profile', 'fstab', 'hosts', 'passwd', 'resolv.conf' and 2 more" in said
    assert "Nothing was written or changed" in said
    assert "Name an empty directory" in said


@pytest.mark.parametrize("ours", ["journal/", "journal", "lock", "journal/diary.md", "staged/", "witness"])
def test_a_name_of_ours_does_not_make_a_foreign_directory_ours(tmp_path, ours):
    (tmp_path / "hosts").touch()
    folder, slash, file = ours.rpartition("/")
    if slash:
        (tmp_path / folder).mkdir()
    if file:
        (tmp_path / ours).touch()
    assert "'hosts'" in refusal(tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["lost+found", "twistd.pid", "twistd.log", "twistd.log.3", "broker.pid"])
def test_what_new_file_systems_and_twistd_put_there_is_no_hindrance(tmp_path, name):
    (tmp_path / name).touch()
    journal.open(tmp_path).close()
    assert (tmp_path / name).exists()


def test_a_repairs_side_folders_and_notes_are_ours(tmp_path):
    (tmp_path / "evidence-20260101T120000Z-1").mkdir()
    (tmp_path / "repairs.json").write_text("[]")
    check_ours(OSFilesystem(tmp_path))


def test_in_a_data_directory_foreign_files_are_nobodys_business(tmp_path):
    journal.open(tmp_path).close()
    (tmp_path / "README").touch()
    journal.open(tmp_path).close()
    os.unlink(tmp_path / "lock")  # as in a copy that left it out
    journal.open(tmp_path).close()


def test_a_first_start_that_was_cut_anywhere_is_taken_up_and_so_is_one_that_was_killed_with_foreign_files():
    cuts = 0
    for nth in range(1, 40):
        inner = MemoryFilesystem()
        try:
            Room(inner, cut_at=nth)
        except PowerCut:
            cuts += 1
        else:
            break
        for seed in range(8):
            check_ours(inner.crash_clone(seed))
        killed = inner.kill_clone()
        if killed.exists("lock"):
            killed.open("README", create=True).close()
            Room(killed)
            assert "README" in contents(killed)
    assert cuts > 8
