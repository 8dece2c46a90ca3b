"""Test whose the files of backups and of restored directories are, and what is said of files that we may not touch."""

import os
import pwd
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import journal
from txbroker.cli import command_line
from txbroker.cli.exits import Exit

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="root alone can give a directory to somebody else, and be somebody else"
)
NOBODY = pwd.getpwnam("nobody")


def called(*arguments, code=0):
    """Run the command line; return what it prints, or its error."""
    done = CliRunner().invoke(command_line, list(map(str, arguments)))
    assert done.exit_code == code, (done.output, done.exception)
    return " ".join(done.output.split())


@contextmanager
def nobody():
    """Be another user."""
    os.seteuid(NOBODY.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder():
    """A folder that everybody may enter, and that is nobody's: pytest's are the user's own."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        os.chown(name, NOBODY.pw_uid, NOBODY.pw_gid)
        yield Path(name)


@pytest.fixture
def data(folder):
    with nobody(), journal.open(folder / "data") as log:
        log.create_topic("events")
        log.append("events", b"one")
    return folder / "data"


def owners(directory):
    return {path.stat().st_uid for path in (directory, *directory.rglob("*"))}


def test_what_root_makes_is_the_owners_and_so_the_next_command_of_the_service_works(folder, data):
    backups = folder / "backups"
    called("backup", "create", data, backups, "--stopped")
    assert owners(backups) == {NOBODY.pw_uid}
    with nobody():
        called("backup", "create", data, backups, "--stopped", "--verify")
    called("backup", "create", data, backups, "--stopped")
    called("backup", "prune", backups, "--keep", 2)
    assert owners(backups) == {NOBODY.pw_uid}
    with nobody():
        called("backup", "prune", backups, "--keep", 1)
        called("backup", "verify", backups)


def test_root_takes_no_lock_that_the_service_could_not_take(folder, data):
    (data / "lock").unlink()
    called("backup", "create", data, folder / "backups", "--stopped")
    assert owners(data) == {NOBODY.pw_uid}
    with nobody():
        journal.open(data).close()


def test_data_that_may_not_be_read_are_told_with_whose_they_are(folder, data):
    os.chown(data / "lock", 0, 0)
    (data / "lock").chmod(0o600)
    with nobody():
        said = called("backup", "create", data, folder / "backups", "--stopped", code=Exit.UNREACHABLE)
    assert f"{data}/lock: Permission denied (it belongs to root, and this is nobody)" in said
    assert "No backup was made" in said


@pytest.mark.parametrize("how", ["an empty directory", "a new one", "an empty one of root's"])
def test_what_root_restores_is_the_owners_and_nobody_else_may_enter(folder, data, how):
    backups, target = folder / "backups", folder / "restored"
    called("backup", "create", data, backups, "--stopped")
    if how != "a new one":
        target.mkdir(mode=0o755)
    if how == "an empty directory":
        os.chown(target, NOBODY.pw_uid, NOBODY.pw_gid)
        said = called("restore", backups, target)
    else:
        said = called("restore", backups, target, "--owner", "nobody")
    assert f"to {target}, which belongs to nobody" in said
    assert owners(target) == {NOBODY.pw_uid}
    assert {path.stat().st_gid for path in (target, *target.rglob("*"))} == {NOBODY.pw_gid}
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    with nobody(), journal.open(target) as log:
        assert [message.value for message in log.read("events")] == [b"one"]


def test_the_owner_is_for_root_and_has_to_be_a_user(folder, data):
    called("backup", "create", data, folder / "backups", "--stopped")
    words = ("restore", folder / "backups", folder / "restored", "--owner")
    assert "has no user" in called(*words, "nobody-has-this-name", code=Exit.USAGE)
    with nobody():
        assert "for root" in called(*words, "nobody", code=Exit.USAGE)
    assert not (folder / "restored").exists()


def test_files_of_another_user_are_told_before_anything_is_done(folder, data):
    backups = folder / "backups"
    with nobody():
        called("backup", "create", data, backups, "--stopped")
    [manifest] = (backups / "backups").iterdir()
    os.chown(manifest, 0, 0)
    before = sorted(backups.rglob("*"))
    with nobody():
        for words in (("create", data, backups, "--stopped"), ("prune", backups, "--keep", 1)):
            said = called("backup", *words, code=Exit.UNREACHABLE)
            assert (
                f"1 of the files and directories in {backups} belong to root, and not to nobody, as {manifest}"
                in said
            )
            assert f"chown -R nobody: {backups}" in said
    assert sorted(backups.rglob("*")) == before


@pytest.mark.parametrize("which", ["backups", "objects"])
def test_what_may_not_be_read_is_not_called_damaged(folder, data, which):
    backups = folder / "backups"
    called("backup", "create", data, backups, "--stopped")
    path = next(path for path in sorted((backups / which).rglob("*")) if path.is_file())
    os.chown(path, 0, 0)
    path.chmod(0o400)
    with nobody():
        for words in (("backup", "verify", backups), ("restore", backups, folder / "restored")):
            said = called(*words, code=Exit.UNREACHABLE)
            assert f"{path}: Permission denied (it belongs to root, and this is nobody)" in said
            assert "as the user that the broker runs as" in said
    assert not (folder / "restored").exists()


def test_a_folder_that_may_not_be_written_to_is_named_and_nothing_is_said_of_room(folder, data):
    called("backup", "create", data, folder / "backups", "--stopped")
    (folder / "closed").mkdir(mode=0o755)
    with nobody():
        said = called("restore", folder / "backups", folder / "closed" / "restored", code=Exit.UNREACHABLE)
    assert f"{folder}/closed/restored: Permission denied" in said
    assert "Nothing was restored" in said
    assert "oom" not in said


def test_a_link_to_nothing_in_the_place_of_a_directory_is_told(folder, data):
    backups = folder / "backups"
    called("backup", "create", data, backups, "--stopped")
    shutil.rmtree(backups / "unfinished")
    (backups / "unfinished").symlink_to("nowhere")
    said = called("backup", "create", data, backups, "--stopped", code=Exit.IO_FAILED)
    assert f"{backups}/unfinished: File exists" in said
    assert "move it away" in said
