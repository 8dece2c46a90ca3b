"""Conformance tests for the engine's file systems: that of the operating system, in memory, with faults."""

import os

import pytest
from zope.interface.verify import verifyObject

from journal.errors import DirectoryLocked, LockLost
from journal.interfaces import IFile, IFilesystem, ILock
from journal.vfs.filesystem import IOV_MAX, write_fully, zero_fill

ESCAPES = ["..", "../a", "a/../b", "/etc/passwd", "a//b", "a/", "./a", ".", "a\0b"]


class FilesystemConformance:
    """Tests of every implementation of IFilesystem; a subclass gives the fixture ``fs``, empty."""

    def file(self, fs, path="a", data=b""):
        file = fs.open(path, create=True)
        write_fully(file, 0, [data])
        return file

    def test_it_implements_what_it_promises(self, fs):
        file, lock = fs.open("a", create=True), fs.lock("lock")
        assert verifyObject(IFilesystem, fs)
        assert verifyObject(IFile, file)
        assert verifyObject(ILock, lock)

    def test_what_is_written_is_read_back_through_any_handle(self, fs):
        file = self.file(fs, "a", b"hello world")
        other = fs.open("a", writable=False)
        assert (file.path, other.path) == ("a", "a")
        assert file.read(0, 11) == other.read(0, 11) == b"hello world"
        write_fully(file, 6, [b"there"])
        assert other.read(4, 4) == b"o th"

    def test_a_read_is_short_only_where_the_file_ends(self, fs):
        file = self.file(fs, data=bytes(range(200)) * 100)
        assert file.read(19_990, 100) == bytes(range(190, 200))
        assert file.read(20_000, 1) == b""
        assert file.read(10**9, 1) == b""
        assert file.read(4_090, 10_000) == (bytes(range(200)) * 100)[4_090:14_090]
        assert file.read(5, 0) == b""

    def test_a_gap_between_writes_reads_zeros(self, fs):
        file = self.file(fs, data=b"a")
        write_fully(file, 10_000, [b"b"])
        assert file.read(0, 20_000) == b"a" + bytes(9_999) + b"b"
        assert file.size() == 10_001

    def test_several_buffers_are_written_one_after_the_other(self, fs):
        file = self.file(fs)
        assert write_fully(file, 3, [b"ab", b"", memoryview(b"xcdx")[1:3], b"e"]) == 5
        assert file.read(0, 10) == b"\0\0\0abcde"

    def test_one_call_takes_at_most_iov_max_buffers(self, fs):
        assert self.file(fs).write_some(0, [b"x"] * (IOV_MAX + 1)) == IOV_MAX

    def test_more_buffers_than_one_call_takes_are_all_written(self, fs):
        file = self.file(fs)
        buffers = [bytes([number % 251]) * 3 for number in range(2 * IOV_MAX + 5)]
        assert write_fully(file, 0, buffers) == 3 * len(buffers)
        assert file.read(0, 10_000) == b"".join(buffers)

    def test_truncating_cuts_and_extends_with_zeros(self, fs):
        file = self.file(fs, data=b"x" * 10_000)
        file.truncate(5_000)
        assert file.size() == 5_000
        file.truncate(9_000)
        assert file.read(0, 20_000) == b"x" * 5_000 + bytes(4_000)
        file.truncate(0)
        assert file.read(0, 1) == b""
        write_fully(file, 6_000, [b"y"])
        assert file.read(0, 20_000) == bytes(6_000) + b"y"

    def test_a_read_that_must_not_wait_gives_the_bytes_or_none(self, fs):
        file = self.file(fs, data=b"x" * 10_000)
        assert file.read_now(9_000, 5_000) in (b"x" * 1_000, None)
        assert file.read_now(20_000, 5) in (b"", None)

    def test_forcing_a_file_and_a_directory_changes_nothing_that_can_be_seen(self, fs):
        fs.make_directory("d")
        file = self.file(fs, "d/a", b"abc")
        file.force()
        fs.force_directory("d")
        fs.force_directory("")
        assert fs.open("d/a").read(0, 9) == b"abc"

    @pytest.mark.parametrize("count", [0, 1, 40])
    def test_many_files_are_forced_together(self, fs, count):
        files = [self.file(fs, str(number), b"abc") for number in range(count)]
        fs.force_files(files)
        assert all(file.read(0, 9) == b"abc" for file in files)
        for file in files:
            file.close()

    def test_if_one_of_many_cannot_be_forced_that_is_told(self, fs):
        files = [self.file(fs, str(number), b"abc") for number in range(20)]
        files[13].close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            fs.force_files(files)
        for file in files:
            file.close()

    def test_opening_makes_a_file_only_when_asked_and_never_empties_one(self, fs):
        with pytest.raises(FileNotFoundError):
            fs.open("a")
        assert not fs.exists("a")
        self.file(fs, "a", b"abc")
        assert fs.open("a", create=True).read(0, 9) == b"abc"
        assert fs.exists("a")

    def test_a_file_opened_for_reading_cannot_be_changed(self, fs):
        self.file(fs, "a", b"abc")
        file = fs.open("a", writable=False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.write_some(0, [b"x"])
        with pytest.raises(OSError, match="Invalid argument"):
            file.truncate(0)
        assert file.read(0, 9) == b"abc"

    def test_positions_before_the_start_are_refused(self, fs):
        file = self.file(fs, data=b"abc")
        for attempt in (
            lambda: file.read(-1, 2),
            lambda: file.read_now(-1, 2),
            lambda: file.write_some(-1, [b"x"]),
            lambda: file.truncate(-1),
        ):
            with pytest.raises(OSError, match="Invalid argument"):
                attempt()
        assert file.read(0, 9) == b"abc"

    def test_a_closed_file_is_of_no_use_and_can_be_closed_again(self, fs):
        file = self.file(fs, data=b"abc")
        file.close()
        file.close()
        for attempt in (
            lambda: file.read(0, 1),
            lambda: file.read_now(0, 1),
            lambda: file.write_some(0, [b"x"]),
            file.force,
            file.size,
            lambda: file.truncate(0),
        ):
            with pytest.raises(OSError, match="Bad file descriptor"):
                attempt()
        assert fs.open("a").read(0, 9) == b"abc"

    def test_a_rename_moves_a_file_and_replaces_what_had_the_name(self, fs):
        fs.make_directory("d")
        self.file(fs, "new", b"new")
        old = self.file(fs, "d/old", b"old")
        fs.rename("new", "d/old")
        assert fs.open("d/old").read(0, 9) == b"new"
        assert fs.list_directory("") == ["d"]
        assert old.read(0, 9) == b"old"
        fs.rename("d/old", "d/old")
        assert fs.list_directory("d") == ["old"]

    def test_renaming_fails_for_a_missing_file_and_onto_a_directory(self, fs):
        fs.make_directory("d")
        self.file(fs, "a")
        with pytest.raises(FileNotFoundError):
            fs.rename("b", "c")
        with pytest.raises(FileNotFoundError):
            fs.rename("a", "e/a")
        with pytest.raises(IsADirectoryError):
            fs.rename("a", "d")
        assert fs.list_directory("") == ["a", "d"]

    def test_an_unlinked_file_is_gone_but_for_those_who_have_it_open(self, fs):
        file = self.file(fs, "a", b"abc")
        fs.unlink("a")
        assert not fs.exists("a")
        assert file.read(0, 9) == b"abc"
        with pytest.raises(FileNotFoundError):
            fs.unlink("a")
        assert self.file(fs, "a").size() == 0

    def test_directories_are_made_once_and_removed_when_empty(self, fs):
        fs.make_directory("d")
        fs.make_directory("d")
        fs.make_directory("d/e")
        self.file(fs, "d/e/a")
        with pytest.raises(OSError, match="not empty"):
            fs.remove_directory("d/e")
        fs.unlink("d/e/a")
        fs.remove_directory("d/e")
        assert fs.list_directory("d") == []
        with pytest.raises(FileNotFoundError):
            fs.make_directory("x/y")

    def test_a_file_in_the_way_of_a_directory_is_an_error(self, fs):
        self.file(fs, "a")
        with pytest.raises(FileExistsError):
            fs.make_directory("a")
        for attempt in (fs.list_directory, fs.remove_directory, fs.force_directory):
            with pytest.raises(NotADirectoryError):
                attempt("a")
        with pytest.raises(NotADirectoryError):
            fs.open("a/b", create=True)
        assert not fs.exists("a/b")

    def test_a_directory_in_the_way_of_a_file_is_an_error(self, fs):
        fs.make_directory("d")
        for attempt in (fs.open, lambda path: fs.open(path, writable=False), fs.unlink):
            with pytest.raises(IsADirectoryError):
                attempt("d")

    def test_a_missing_directory_is_an_error(self, fs):
        for attempt in (fs.list_directory, fs.remove_directory, fs.force_directory):
            with pytest.raises(FileNotFoundError):
                attempt("d")
        with pytest.raises(FileNotFoundError):
            fs.open("d/a", create=True)

    def test_a_directory_lists_its_names_sorted(self, fs):
        for name in ("b", "a", "B", "10", "9"):
            self.file(fs, name)
        assert fs.list_directory("") == ["10", "9", "B", "a", "b"]

    @pytest.mark.parametrize("path", ESCAPES)
    def test_no_path_leads_out_of_the_root(self, fs, path):
        for attempt in (
            lambda: fs.open(path, create=True),
            lambda: fs.rename(path, "b"),
            lambda: fs.unlink(path),
            lambda: fs.make_directory(path),
            lambda: fs.remove_directory(path),
            lambda: fs.list_directory(path),
            lambda: fs.exists(path),
            lambda: fs.force_directory(path),
            lambda: fs.lock(path),
        ):
            with pytest.raises(ValueError, match="not a plain path"):
                attempt()
        self.file(fs, "a")
        with pytest.raises(ValueError, match="not a plain path"):
            fs.rename("a", path)

    def test_a_held_lock_is_refused_to_others_with_the_owners_process(self, fs):
        lock = fs.lock("lock")
        with pytest.raises(DirectoryLocked, match=rf"is locked by process {os.getpid()}: .*Nothing was"):
            fs.lock("lock")
        with pytest.raises(DirectoryLocked):
            fs.lock("another")
        fs.make_directory("elsewhere")
        fs.force_directory("")
        other = fs.lock("elsewhere/lock")
        lock.release()
        lock.release()
        again = fs.lock("lock")
        lock.release()
        with pytest.raises(DirectoryLocked):
            fs.lock("lock")
        again.check()
        again.release()
        other.release()

    @pytest.mark.parametrize("back", [False, True])
    def test_who_removes_the_locks_file_gets_no_lock_and_its_holder_is_told(self, fs, back):
        lock = fs.lock("lock")
        lock.check()
        fs.unlink("lock")
        if back:
            fs.open("lock", create=True).close()
        fs.force_directory("")
        with pytest.raises(DirectoryLocked, match="Removing files does not help"):
            fs.lock("lock")
        with pytest.raises(LockLost, match=r"lock, by which .* has been re.* process must stop.*start again"):
            lock.check()
        lock.release()
        again = fs.lock("lock")
        again.check()
        again.release()

    def test_zeros_are_written_where_asked_and_nowhere_else(self, fs):
        file = self.file(fs, data=b"x" * 100)
        zero_fill(file, 10, 25, step=10)
        assert file.read(0, 200) == b"x" * 10 + bytes(25) + b"x" * 65
        zero_fill(file, 90, 3_000_000)
        assert file.size() == 3_000_090
        assert file.read(90, 3_000_000) == bytes(3_000_000)
        zero_fill(file, 0, 0)
        assert file.read(0, 1) == b"x"

    def test_there_is_a_free_byte(self, fs):
        assert fs.free_bytes() > 0
