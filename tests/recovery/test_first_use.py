"""Test that a start takes only an empty, a complete or a half-made data directory, never another folder or format
version.
"""

from __future__ import annotations

import os

import pytest

import journal
from journal.check import verify
from journal.constants import BLOCK
from journal.errors import ForeignDirectory, UnknownFormat
from journal.formats import filenames
from journal.formats.version import FORMAT, OLDEST_FORMAT, PROGRAM
from journal.formats.version_file import OURS, Written, pack_version, read_version
from journal.recovery.first_use import check_ours
from journal.repair import diagnose
from journal.testing import MemoryFilesystem, PowerCut
from journal.vfs.filesystem import OSFilesystem, write_fully
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


def used():
    """A directory with everything that says a version: witness, two checkpoints, a journal file or more."""
    room = Room()
    room.topic("t", 1)
    for value in (b"1", b"2"):
        room.send(value)
        room.checkpoint()
    return room.inner.kill_clone()


def versioned(filesystem):
    """The places of the version in the files that a start looks at, where no file ``txbroker.version`` tells it."""
    if filesystem.exists(filenames.VERSION):
        filesystem.unlink(filenames.VERSION)
    yield "witness", 7
    for directory in ("checkpoints", "journal"):
        for name in filesystem.list_directory(directory):
            if not name.endswith(".next"):
                yield f"{directory}/{name}", 7
                if directory == "journal":
                    yield f"{directory}/{name}", BLOCK + 7


def says(filesystem, path, position, version):
    file = filesystem.open(path)
    write_fully(file, position, [bytes((version,))])
    file.close()


@pytest.mark.parametrize("version", [1, FORMAT + 1, 255])
@pytest.mark.parametrize("without", ["", "witness", "checkpoints"])
def test_a_directory_of_another_format_version_is_refused_by_name_and_left_as_it_was(version, without):
    filesystem = used()
    for path, position in list(versioned(filesystem)):
        says(filesystem, path, position, version)
    for path, _ in list(versioned(filesystem)) if without else ():
        if path.startswith(without) and filesystem.exists(path):
            filesystem.unlink(path)
    before = contents(filesystem)
    for looks in (Room, diagnose, lambda each: list(verify(each))):
        with pytest.raises(UnknownFormat) as refused:
            looks(filesystem)
        said = str(refused.value)
        assert f"says that the data directory is of format {version}, written by " in said
        assert (
            f"this is txbroker {PROGRAM}, which reads formats 2 to 3 and writes 3. Nothing was written or changed"
            in said
        )
        assert said.startswith(refused.value.path)
        assert contents(filesystem) == before


def test_one_file_that_says_another_version_is_damage_as_any_other():
    for damaged in dict(versioned(used())):
        filesystem = used()
        for path, position in list(versioned(filesystem)):
            if path == damaged:
                says(filesystem, path, position, 1)
        assert [each for each in verify(filesystem) if each.path == damaged], damaged


def test_a_directory_of_version_1_as_it_was_written_then_is_refused(tmp_path):
    """The first bytes of such a directory's files, as the program of that version wrote them."""
    for directory in ("journal", "checkpoints", "partitions", "staged"):
        (tmp_path / directory).mkdir()
    (tmp_path / "lock").touch()
    (tmp_path / "witness").write_bytes(bytes.fromhex("5458425749544e01"))
    (tmp_path / "checkpoints" / f"{68719476743:032}.checkpoint").write_bytes(
        bytes.fromhex("545842434b505401")
    )
    (tmp_path / "journal" / f"{68719476736:032}.journal").write_bytes(bytes.fromhex("5458424a524e4c01"))
    said = "witness says that the data directory is of format 1, written by a development version from before"
    with pytest.raises(UnknownFormat, match=said):
        journal.open(tmp_path)


def rewritten(filesystem, written):
    """The directory says that this wrote it."""
    file = filesystem.open(filenames.VERSION)
    packed = pack_version(written)
    write_fully(file, 0, [packed])
    file.truncate(len(packed))
    file.close()


@pytest.mark.parametrize("looks", [Room, diagnose, lambda each: list(verify(each))])
def test_a_directory_of_a_newer_format_is_refused_with_the_version_that_wrote_it_and_what_to_do(looks):
    """Every other file still says our format, as when the newer version was killed in its first moment here."""
    filesystem = used()
    rewritten(filesystem, Written(FORMAT + 1, "0.9.0"))
    before = contents(filesystem)
    with pytest.raises(UnknownFormat) as refused:
        looks(filesystem)
    assert str(refused.value) == (
        f"txbroker.version says that the data directory is of format {FORMAT + 1}, written by txbroker 0.9.0; this is "
        f"txbroker {PROGRAM}, which reads formats 2 to {FORMAT} and writes {FORMAT}. Nothing was written or changed. "
        "Start version 0.9.0 or a newer one here, or go back to this one with the backup that was made before the "
        "upgrade (docs/upgrading.md)"
    )
    assert contents(filesystem) == before


def test_a_directory_of_an_older_format_is_started_and_says_ours_then():
    filesystem = used()
    rewritten(filesystem, Written(OLDEST_FORMAT, "0.2.0"))
    assert list(verify(filesystem)) == []
    assert not Room(filesystem).engine.report.notes
    assert read_version(filesystem) == OURS


def test_another_version_of_the_same_format_is_no_hindrance_and_the_start_says_its_own():
    filesystem = used()
    rewritten(filesystem, Written(FORMAT, "0.9.12"))
    assert not Room(filesystem).engine.report.notes
    assert read_version(filesystem) == OURS


def test_the_version_is_on_disk_before_anything_that_a_start_writes():
    """Seen with it written behind the new journal file: a power cut left that file under another version's name."""
    for nth in range(1, 60):
        filesystem = used()
        rewritten(filesystem, Written(FORMAT, "0.9.12"))
        for path in contents(filesystem):
            filesystem.open(path).force()
        files = set(contents(filesystem))
        try:
            Room(filesystem, cut_at=nth)
        except PowerCut:
            for seed in range(4):
                cut = filesystem.crash_clone(seed)
                if {path for path in contents(cut) if path.endswith(".journal")} - files:
                    assert read_version(cut) == OURS
        else:
            break
    assert nth > 4
