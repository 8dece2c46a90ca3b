"""Test ``txbroker backup`` and ``txbroker restore`` on real files: stopped directories, and beside a real broker."""

import json
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import journal
import txbroker
from journal.backup import layout
from journal.backup.pace import Pace
from journal.backup.restoring import restore as restore_backup
from journal.constants import MIB
from journal.errors import FilesReleased
from journal.transaction_states import TransactionNumber
from journal.vfs.filesystem import OSFilesystem
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker.cli import command_line
from txbroker.cli.commands.directories import backup, restore
from txbroker.cli.directory.broker_hold import BrokerHold
from txbroker.cli.exits import Exit


def called(*arguments, code=0):
    """Run the command line; return what it prints, or its error."""
    done = CliRunner().invoke(command_line, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.output if code != Exit.OK else done.stdout


def told(*arguments, code=0):
    return json.loads(called(*arguments, "--json", code=code))


@pytest.fixture
def data(tmp_path):
    with journal.open(tmp_path / "data") as log:
        log.create_topic("events")
        log.append("events", b"one")
    return tmp_path / "data"


def test_a_stopped_directory_is_backed_up_listed_verified_restored_and_pruned(data, tmp_path):
    backups = tmp_path / "backups"
    first = told("backup", "create", data, backups, "--stopped", "--verify")
    with journal.open(data) as log:
        log.append("events", b"two")
    second = told("backup", "create", data, backups, "--stopped", "--rate", "100MiB")
    listed = told("backup", "list", backups)
    assert [each["name"] for each in listed["backups"]] == [first["name"], second["name"]]
    verified = told("backup", "verify", backups)
    assert (verified["sound"], verified["damaged"]) == ([first["name"], second["name"]], [])
    assert (backups.stat().st_mode & 0o777, second["cut"] > first["cut"]) == (0o700, True)
    objects = [path for path in (backups / "objects").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in objects} == {0o400}
    assert {path.stat().st_nlink for path in objects} == {1}
    done = told("restore", backups, tmp_path / "again", "--backup", first["name"])
    assert (done["backup"], done["restored_transactions"]) == (first["name"], [])
    with journal.open(tmp_path / "again") as log:
        assert [message.value for message in log.read("events")] == [b"one"]
        assert log.engine.start_number == done["start"] + 1
    assert told("verify", tmp_path / "again", "--deep")["damaged"] is False
    assert told("backup", "prune", backups, "--keep", "1")["removed"] == [first["name"]]
    called("restore", backups, tmp_path / "newest")
    assert "1 backup sound" in called("backup", "verify", backups)
    assert second["name"] in called("backup", "list", backups)


def test_every_command_says_whose_data_they_are(tmp_path):
    backups, names, identities = tmp_path / "backups", [], []
    for folder in ("a", "b"):
        told("init", "--data", tmp_path / folder, "--password-file", a_password(tmp_path))
        made = told("backup", "create", tmp_path / folder, backups, "--stopped")
        names.append(made["name"])
        identities.append(made["identity"])
    assert len(set(identities) - {""}) == 2
    said = " ".join(called("restore", backups, tmp_path / "again", code=Exit.REFUSED).split())
    assert "2 data directories" in said
    assert all(name in said for name in (*names, *identities))
    assert not (tmp_path / "again").exists()
    for arguments in (
        ("backup", "create", tmp_path / "a", backups, "--stopped"),
        ("restore", backups, tmp_path / "again", "--backup", names[0]),
        ("backup", "verify", backups),
        ("backup", "prune", backups, "--keep", 1),
    ):
        assert identities[0] in called(*arguments), arguments
    assert len(told("backup", "list", backups)["backups"]) == 2


def test_a_prune_names_what_is_damaged_and_exits_with_6(data, tmp_path):
    backups = tmp_path / "backups"
    made = told("backup", "create", data, backups, "--stopped")
    for path in list((backups / "objects").rglob("*")):
        if path.is_file():
            path.unlink()
    assert f"DAMAGED, and not counted: {made['name']}" in called(
        "backup", "prune", backups, "--keep", 1, code=Exit.CORRUPT
    )


def test_who_decides_what_a_restored_directory_holds_prepared_is_said_for_a_copy_too(
    data, tmp_path, monkeypatch
):
    backups = tmp_path / "backups"
    called("backup", "create", data, backups, "--stopped")
    monkeypatch.setattr(restore, "restore_backup", with_a_prepared_transaction)
    said = " ".join(called("restore", backups, tmp_path / "restored").split())
    assert "resolvers commit what their databases have" in said
    said = " ".join(called("restore", backups, tmp_path / "copy", "--as-copy").split())
    assert "the copy refuses commit and rollback alike" in said
    assert "resolvers commit" not in said


def with_a_prepared_transaction(*arguments):
    return restore_backup(*arguments)._replace(waiting=[TransactionNumber(1, 1)])


def test_no_inode_of_a_data_directory_is_in_a_backup_nor_of_a_backup_in_a_data_directory(data, tmp_path):
    called("backup", "create", data, tmp_path / "backups", "--stopped")
    called("restore", tmp_path / "backups", tmp_path / "again")
    inodes = [
        {(path.stat().st_dev, path.stat().st_ino) for path in folder.rglob("*") if path.is_file()}
        for folder in (data, tmp_path / "backups", tmp_path / "again")
    ]
    assert all(inodes)
    assert not inodes[0] & inodes[1] | inodes[1] & inodes[2] | inodes[0] & inodes[2]


def test_what_cannot_be_is_refused_with_an_exit_code_that_says_whose_fault_it_is(data, tmp_path):
    backups = tmp_path / "backups"
    for arguments in (("backup", "list", tmp_path / "none"), ("restore", tmp_path / "none", tmp_path / "x")):
        assert f"{tmp_path}/none does not exist" in called(*arguments, code=Exit.NO)
    assert f"{data} holds no backups" in called("backup", "list", data, code=Exit.NO)
    assert "not a data directory" in called(
        "backup", "create", tmp_path, backups, "--stopped", code=Exit.USAGE
    )
    called("backup", "create", data, backups, "--stopped")
    assert "not empty" in called("restore", backups, data, code=Exit.REFUSED)
    assert "no backup" in called(
        "restore", backups, tmp_path / "x", "--backup", "000009-20260101T000000Z", code=Exit.NO
    )
    assert "other files" not in called("backup", "create", data, data, "--stopped", code=Exit.REFUSED)
    backups.chmod(0o750)
    assert "chmod 700" in called("backup", "create", data, backups, "--stopped", code=Exit.REFUSED)
    backups.chmod(0o700)
    called("backup", "prune", backups, "--keep", "0", code=Exit.USAGE)
    with journal.open(data):
        called("backup", "create", data, backups, "--stopped", code=Exit.UNREACHABLE)
    [manifest] = (backups / "backups").iterdir()
    manifest.write_bytes(manifest.read_bytes().replace(b'"start"', b'"stArt"'))
    assert "DAMAGED" in called("backup", "list", backups, code=Exit.CORRUPT)
    assert "damaged" in called("restore", backups, tmp_path / "x", code=Exit.CORRUPT)
    assert not (tmp_path / "x").exists()


def test_data_and_backups_are_not_in_each_other(data, tmp_path):
    """In the one place a backup goes with its data, in the other no further backup could be made."""
    backups = tmp_path / "backups"
    called("backup", "create", data, backups, "--stopped")
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "link").symlink_to(backups)
    for arguments in (
        ("backup", "create", data, data / "backups", "--stopped"),
        ("restore", backups, backups / "restored"),
        ("restore", backups, tmp_path / "link" / "objects" / "x"),
    ):
        assert "Name a directory elsewhere" in called(*arguments, code=Exit.USAGE)
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def a_password(folder):
    """The file of a password, which nobody else may read."""
    path = folder / "password"
    path.touch(0o600)
    path.write_text("correct horse")
    return path


def test_nothing_new_is_made_inside_of_another_data_directory(data, tmp_path):
    """It would be removed with the other data, and no backup of those would have it."""
    backups, other = tmp_path / "backups", tmp_path / "other"
    called("backup", "create", data, backups, "--stopped")
    journal.open(other).close()
    (tmp_path / "link").symlink_to(other)
    password = a_password(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for arguments in (
        ("restore", backups, other / "restored"),
        ("restore", backups, tmp_path / "link" / "deep" / "restored"),
        ("backup", "create", data, other / "backups", "--stopped"),
        ("init", "--data", other / "data", "--password-file", password),
    ):
        assert f"in the data directory {other}" in " ".join(called(*arguments, code=Exit.USAGE).split())
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_made_where_a_folder_is_missing(data, tmp_path):
    """The disk that it should be on may not be mounted."""
    backups = tmp_path / "backups"
    called("backup", "create", data, backups, "--stopped")
    (tmp_path / "file").touch()
    password = a_password(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for folder, what in (("no", "missing"), ("file", "no directory")):
        for arguments in (
            ("restore", backups, tmp_path / folder / "restored"),
            ("backup", "create", data, tmp_path / folder / "backups", "--stopped"),
            ("init", "--data", tmp_path / folder / "data", "--password-file", password),
        ):
            said = " ".join(called(*arguments, code=Exit.USAGE).split())
            assert f"cannot be made: {tmp_path / folder} is {what}. Nothing was done" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_what_lies_inside_of_another_data_directory_already_goes_on(data, tmp_path):
    backups, outer, inner = tmp_path / "backups", tmp_path / "outer", tmp_path / "inner"
    called("backup", "create", data, backups, "--stopped")
    told("init", "--data", inner, "--password-file", a_password(tmp_path))
    journal.open(outer).close()
    for each in (backups, inner):
        each.rename(outer / each.name)
    called("backup", "create", data, outer / "backups", "--stopped")
    assert len(told("backup", "list", outer / "backups")["backups"]) == 2
    password = tmp_path / "password"
    told("init", "--data", outer / "inner", "--password-file", password, "--if-not-exists")


@contextmanager
def files_of_at_most(size):
    """Have no file written that is larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_call_that_fails_says_what_is_there_now_and_what_to_do(data, tmp_path):
    backups = tmp_path / "backups"
    called("backup", "create", data, backups, "--stopped")
    before = sorted(backups.rglob("*"))
    with journal.open(data) as log:
        log.append("events", b"two" * 100_000)
    with files_of_at_most(50_000):
        said = " ".join(called("backup", "create", data, backups, "--stopped", code=Exit.IO_FAILED).split())
    assert "File too large" in said
    assert "unless 'txbroker backup list' has it" in said
    assert [path for path in sorted(backups.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]
    with files_of_at_most(50_000):
        said = " ".join(called("restore", backups, tmp_path / "again", code=Exit.IO_FAILED).split())
    assert "which no start goes past" in said
    assert "empty it" in said


@pytest.mark.slow
def test_a_backup_beside_a_broker_has_what_was_acknowledged_and_a_lost_pin_makes_none(tmp_path):
    data, backups, audit = tmp_path / "data", tmp_path / "backups", tmp_path / "audit.json"
    with (
        BrokerProcess(data, f"audit={audit}") as process,
        txbroker.connect(process.address) as broker,
    ):
        broker.create_topic("orders", partitions=2)
        for number in range(100):
            broker.send("orders", b"%d" % number)
        acknowledged = broker.status()["last_lsn"]
        made = told("backup", "create", data, backups, "--verify", "--broker", process.address)
        assert made["identity"] == broker.identity
        assert acknowledged <= made["cut"] <= broker.status()["last_lsn"], "a mark may come by itself"
        assert broker.status()["pins"] == 0
        eventually(lambda: len(files_told(audit)) == 2)
        begun, ended = files_told(audit)
        assert (begun["by"], begun["cut"]) == ("txbroker backup", made["cut"])
        assert (ended["what"], ended["kept"]) == ("files.released", True)
        other = tmp_path / "other"
        called("restore", backups, other)
        said = called("backup", "create", other, backups, "--broker", process.address, code=Exit.REFUSED)
        assert "another directory than the broker's" in said
        with txbroker.connect(process.address) as reader:
            hold = BrokerHold(reader)
            hold.check()
            process.kill()
            process.start()
            with pytest.raises(FilesReleased):
                hold.check()
            assert hold.release() is False
        assert len(told("backup", "list", backups)["backups"]) == 1
        nobody = ("--broker", "tcp:127.0.0.1:1", "--timeout", "200ms")
        called("backup", "create", data, backups, *nobody, code=Exit.UNREACHABLE)
    with BrokerProcess(tmp_path / "other") as process, txbroker.connect(process.address) as broker:
        found = [message.value for p in (0, 1) for message in broker.read("orders", p, 0)]
        assert sorted(map(int, found)) == list(range(100))


def files_told(audit):
    lines = map(json.loads, audit.read_text().splitlines())
    return [line for line in lines if line["what"].startswith("files.")]


def test_which_way_a_backup_is_made_is_said_where_the_other_was_asked_for(data, tmp_path):
    backups = tmp_path / "backups"
    with journal.open(data):
        said = " ".join(called("backup", "create", data, backups, "--stopped", code=Exit.UNREACHABLE).split())
    assert f"process {os.getpid()} has {data} open" in said
    assert "leave out --stopped" in said
    nobody = ("--broker", "tcp:127.0.0.1:1", "--timeout", "200ms")
    said = " ".join(called("backup", "create", data, backups, *nobody, code=Exit.UNREACHABLE).split())
    assert f"If none runs on {data}, say --stopped" in said


def test_a_directory_in_the_place_of_a_command_is_told_the_command(data):
    assert f"Did you mean 'txbroker backup create {data} BACKUPS'?" in " ".join(
        called("backup", data, code=Exit.USAGE).split()
    ).replace("│ ", "").replace(" │", "")
    assert "Did you mean" not in called("backup", "no-directory", code=Exit.USAGE)


def test_a_rate_that_has_no_unit_is_refused(data, tmp_path):
    for rate in ("1", "50", "63KiB"):
        said = called("backup", "create", data, tmp_path / "b", "--stopped", "--rate", rate, code=Exit.USAGE)
        assert "bytes in a second" in said
    for rate in ("0", "64KiB"):
        called("backup", "create", data, tmp_path / "b", "--stopped", "--rate", rate)


def test_each_command_that_reads_in_bulk_keeps_the_rate(data, tmp_path, monkeypatch):
    rates = []

    def pace(rate):
        rates.append(rate)
        return Pace()

    for command in (backup, restore):
        monkeypatch.setattr(command, "Pace", pace)
    backups = tmp_path / "backups"
    for number, arguments in enumerate(
        (
            ("backup", "create", data, backups, "--stopped"),
            ("backup", "verify", backups),
            ("restore", backups, tmp_path / "restored"),
        )
    ):
        called(*arguments, "--rate", f"{number + 1}MiB")
    assert rates == [MIB, 2 * MIB, 3 * MIB]


def test_what_an_interrupted_restore_has_left_is_told_by_all_commands(data, tmp_path):
    backups, half = tmp_path / "backups", tmp_path / "half"
    called("backup", "create", data, backups, "--stopped")
    called("restore", backups, half)
    (half / "restore.unfinished").write_text("the name of a backup\n")
    for arguments, code in (
        (("restore", backups, half), Exit.REFUSED),
        (("backup", "create", half, backups, "--stopped"), Exit.CORRUPT),
    ):
        said = " ".join(called(*arguments, code=code).split())
        assert "a backup was being restored to this directory, and that was not finished" in said
    (half / "journal").rename(tmp_path / "elsewhere")
    (half / "journal").mkdir()
    said = " ".join(called("backup", "create", half, backups, "--stopped", code=Exit.CORRUPT).split())
    assert "that was not finished" in said
    said = " ".join(called("verify", half, code=Exit.CORRUPT).split())
    assert "A restore was not finished: remove all that is in there" in said
    assert "repair" not in said


def test_the_directory_of_backups_is_held_by_one_at_a_time(data, tmp_path):
    called("backup", "create", data, tmp_path / "backups", "--stopped")
    backups = tmp_path / "backups"
    held = OSFilesystem(backups).lock(layout.LOCK)
    try:
        for arguments in (
            ("backup", "create", data, backups, "--stopped"),
            ("backup", "prune", backups, "--keep", 1),
            ("backup", "verify", backups),
            ("restore", backups, tmp_path / "x"),
        ):
            said = " ".join(called(*arguments, code=Exit.UNREACHABLE).split())
            assert f"process {os.getpid()} is at work in the directory of backups" in said
            assert "data directory open" not in said
    finally:
        held.release()
    assert os.listdir(tmp_path / "backups" / "unfinished") == []
    assert not Path(tmp_path / "x").exists()
