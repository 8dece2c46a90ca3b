"""Test the operating system's files: what every file system does, and what only this one can get wrong."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys

import pytest

from journal.errors import DirectoryLocked, LockLost, StorageUnavailable
from journal.vfs.filesystem import OSFilesystem
from tests.support.filesystem_conformance import FilesystemConformance


class TestOSFilesystem(FilesystemConformance):
    @pytest.fixture
    def fs(self, tmp_path):
        return OSFilesystem(tmp_path)

    def test_the_root_is_made_by_making_the_empty_path(self, tmp_path):
        fs = OSFilesystem(tmp_path / "data")
        fs.make_directory("")
        fs.make_directory("")
        assert fs.list_directory("") == []

    def test_a_relative_root_stays_where_it_was_when_the_process_changes_directory(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        fs = OSFilesystem(".")
        monkeypatch.chdir("/")
        fs.open("a", create=True).close()
        assert (tmp_path / "a").exists()

    def test_descriptors_are_not_inherited_and_are_given_back(self, fs):
        before = len(os.listdir("/proc/self/fd"))
        file, lock = fs.open("a", create=True), fs.lock("lock")
        assert not os.get_inheritable(file._descriptor)
        assert [os.get_inheritable(descriptor) for _, descriptor in lock._held] == [False, False]
        with pytest.raises(DirectoryLocked):
            fs.lock("lock")
        fs.make_directory("d")
        with pytest.raises(IsADirectoryError):
            fs.open("d", writable=False)
        fs.force_directory("")
        file.close()
        lock.release()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_the_lock_of_another_process_is_seen_and_goes_with_its_death(self, fs, tmp_path):
        program = (
            "import sys; from journal.vfs.filesystem import OSFilesystem; "
            f"l = OSFilesystem({str(tmp_path)!r}).lock('lock'); print('held', flush=True); sys.stdin.read()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with child:
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(DirectoryLocked, match=rf"{tmp_path} is locked by process {child.pid}:"):
                fs.lock("lock")
            (tmp_path / "lock").unlink()
            with pytest.raises(DirectoryLocked, match=rf"{tmp_path} is locked by process {child.pid}:"):
                fs.lock("lock")
            assert not (tmp_path / "lock").exists()
            child.kill()
            child.wait()
            fs.lock("lock").release()

    def test_a_lock_is_taken_on_a_full_disk(self, fs, monkeypatch):
        def full(*_arguments):
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(os, "pwrite", full)
        lock = fs.lock("lock")
        with pytest.raises(DirectoryLocked, match=f"by process {os.getpid()}:"):
            fs.lock("lock")
        lock.release()

    def test_a_directory_in_the_place_of_the_one_that_was_locked_is_noticed(self, tmp_path):
        data = tmp_path / "data"
        data.mkdir()
        lock = OSFilesystem(data).lock("lock")
        data.rename(tmp_path / "away")
        with pytest.raises(LockLost, match=rf"{data}, by which .* has been removed"):
            lock.check()
        shutil.copytree(tmp_path / "away", data)
        with pytest.raises(LockLost, match=rf"{data}, by which .* has been replaced"):
            lock.check()
        OSFilesystem(data).lock("lock").release()
        data.rename(tmp_path / "copy")
        (tmp_path / "away").rename(data)
        lock.check()
        lock.release()

    def test_without_locks_of_directories_no_broker_gets_in_and_readers_do(self, fs, tmp_path, monkeypatch):
        real = fcntl.flock

        def of_nfs(descriptor, kind):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            real(descriptor, kind)

        monkeypatch.setattr(fcntl, "flock", of_nfs)
        with pytest.raises(
            StorageUnavailable, match=f"{tmp_path} has no lock for a directory.*local file system"
        ):
            fs.lock("lock")
        assert os.listdir(tmp_path) == []
        fs.read_lock("lock").release()

    def test_locks_for_reading_are_many_need_no_file_and_keep_brokers_out(self, fs, tmp_path):
        locks = [fs.read_lock("lock"), fs.read_lock("lock")]
        assert os.listdir(tmp_path) == []
        for lock in locks:
            with pytest.raises(DirectoryLocked):
                fs.lock("lock")
            lock.check()
            lock.release()
        mine = fs.lock("lock")
        (tmp_path / "lock").unlink()
        with pytest.raises(DirectoryLocked):
            fs.read_lock("lock")
        mine.release()

    def test_a_directory_whose_state_cannot_be_found_out_does_not_pass_for_missing(self, fs, monkeypatch):
        def refuse(_path):
            raise PermissionError(errno.EACCES, "no")

        monkeypatch.setattr(os, "stat", refuse)
        with pytest.raises(PermissionError):
            fs.exists("a")

    @pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
    def test_a_read_that_would_wait_or_cannot_tell_reads_none(self, fs, monkeypatch, number):
        file = self.file(fs, data=b"abc")
        assert file.read_now(0, 3) in (b"abc", None)

        def refuse(*_arguments):
            raise OSError(number, "later")

        monkeypatch.setattr(os, "preadv", refuse)
        assert file.read_now(0, 3) is None

    def test_a_read_of_which_only_a_part_is_at_hand_is_none_and_not_short(self, fs, monkeypatch):
        file = self.file(fs, data=b"abcdef")

        def half(_descriptor, buffers, position, _flags):
            if position:
                raise BlockingIOError(errno.EAGAIN, "later")
            buffers[0][:3] = b"abc"
            return 3

        monkeypatch.setattr(os, "preadv", half)
        assert file.read_now(0, 6) is None

    def test_without_the_flag_of_the_platform_a_read_that_must_not_wait_is_none(self, fs, monkeypatch):
        monkeypatch.setattr("journal.vfs.filesystem._READ_NOW_FLAG", None)
        assert self.file(fs, data=b"abc").read_now(0, 3) is None

    def test_a_failed_read_that_must_not_wait_is_not_taken_for_waiting(self, fs, monkeypatch):
        def fail(*_arguments):
            raise OSError(errno.EIO, "broken")

        file = self.file(fs, data=b"abc")
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(OSError, match="broken"):
            file.read_now(0, 3)

    def test_a_read_goes_on_where_the_system_stopped_short(self, fs, monkeypatch):
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 7), position))
        file = self.file(fs, data=bytes(range(100)))
        assert file.read(10, 50) == bytes(range(10, 60))
        assert file.read(90, 50) == bytes(range(90, 100))


def test_of_many_files_each_is_forced_before_the_call_returns(tmp_path, monkeypatch):
    filesystem = OSFilesystem(tmp_path)
    files = [filesystem.open(str(number), create=True) for number in range(40)]
    forced = []
    monkeypatch.setattr("journal.vfs.filesystem.os.fdatasync", forced.append)
    filesystem.force_files(files)
    assert sorted(forced) == sorted(file._descriptor for file in files)
    for file in files:
        file.close()


def test_a_call_that_fails_names_the_file_though_the_system_knows_only_a_descriptor(tmp_path, monkeypatch):
    filesystem = OSFilesystem(tmp_path)
    file = filesystem.open("a", create=True)

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    attempts = (
        lambda: file.read(0, 1),
        lambda: file.read_now(0, 1),
        lambda: file.write_some(0, [b"x"]),
        file.force,
        file.size,
        lambda: file.truncate(1),
        lambda: filesystem.force_directory(""),
    )
    raised = []
    with monkeypatch.context() as patch:
        for call in ("pread", "preadv", "pwritev", "fdatasync", "fstat", "ftruncate", "fsync"):
            patch.setattr(f"journal.vfs.filesystem.os.{call}", fails)
        for attempt in attempts:
            with pytest.raises(OSError, match="Input/output error") as caught:
                attempt()
            raised.append((caught.value.errno, caught.value.filename))
    assert raised == [*[(errno.EIO, "a")] * 6, (errno.EIO, str(tmp_path))]
