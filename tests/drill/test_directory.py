"""Test that a user's data directory is copied at rest, and never written to."""

import fcntl
import os
import socket

import pytest

import journal
from journal.errors import DirectoryLocked
from journal.vfs.filesystem import OSFilesystem
from tests.support.builders import small_files
from txbroker.drill.directory import NoDirectory, check_data_directory, copy_data, held


@pytest.fixture
def data(tmp_path):
    with journal.open(tmp_path / "data", small_files()) as log:
        log.create_topic("t")
        log.append("t", b"a message")
    return tmp_path / "data"


def everything(path):
    """Every file with its bytes and times."""
    found = {}
    for file in sorted(path.rglob("*")):
        stat = file.stat()
        found[file.relative_to(path)] = (
            file.read_bytes() if file.is_file() else b"",
            stat.st_mtime_ns,
            stat.st_ino,
        )
    return found


@pytest.mark.slow
def test_a_copy_has_every_byte_and_the_original_is_as_it_was(data, tmp_path):
    before = everything(data)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(data / "admin.sock"))  # as by a broker that was killed
    copy_data(data, tmp_path / "copy")
    (data / "admin.sock").unlink()
    assert everything(data) == before
    assert {name: file[0] for name, file in everything(tmp_path / "copy").items()} == {
        name: file[0] for name, file in before.items()
    }


def test_a_directory_that_a_process_has_open_is_refused_by_its_id_and_nothing_is_made(data, tmp_path):
    with (
        journal.open(data, small_files()),
        pytest.raises(DirectoryLocked, match=f"process {os.getpid()}.*stop that broker"),
    ):
        copy_data(data, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_while_it_is_held_no_broker_can_open_it(data):
    with held(data), pytest.raises(DirectoryLocked):
        journal.open(data, small_files())
    journal.open(data, small_files()).close()


def test_holding_leaves_the_lock_file_alone(data):
    lock = data / "lock"
    lock.write_bytes(b"what people find\n")
    with held(data):
        assert lock.read_bytes() == b"what people find\n"
    assert lock.read_bytes() == b"what people find\n"


def test_a_copy_without_a_lock_file_is_at_rest(data):
    (data / "lock").unlink()
    with held(data):
        pass
    assert not (data / "lock").exists()


def test_what_is_no_data_directory_is_refused(tmp_path):
    with pytest.raises(NoDirectory, match="no 'journal'"):
        check_data_directory(tmp_path)


def test_a_full_disk_is_noticed_before_the_copy_begins(data, tmp_path, monkeypatch):
    monkeypatch.setattr("txbroker.drill.directory.SPARE_BYTES", 1 << 62)
    with pytest.raises(NoDirectory, match="--out"):
        copy_data(data, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_the_lock_is_the_one_that_brokers_take(data):
    lock = OSFilesystem(data).lock("lock")
    descriptor = os.open(data / "lock", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(descriptor)
    lock.release()
