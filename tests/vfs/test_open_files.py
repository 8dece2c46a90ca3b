import pytest

from journal.testing import Fault, FaultFilesystem, FaultPlan, MemoryFilesystem, Operation
from journal.vfs.open_files import OpenFiles


@pytest.fixture
def files():
    filesystem = MemoryFilesystem()
    for name in "abcdef":
        filesystem.open(name, create=True).close()
    return OpenFiles(filesystem, limit=2)


def is_closed(file):
    try:
        file.size()
    except OSError:
        return True
    return False


def test_a_file_is_opened_once_while_it_is_in_use(files):
    assert files.acquire("a") is files.acquire("a")
    assert len(files) == 1


def test_a_missing_file_is_made_only_when_asked(files):
    with pytest.raises(FileNotFoundError):
        files.acquire("new")
    assert files.acquire("new", create=True).size() == 0


def test_of_the_idle_files_the_longest_unused_is_closed(files):
    a, b = files.acquire("a"), files.acquire("b")
    files.release(a)
    files.release(b)
    files.release(files.acquire("a"))
    files.release(files.acquire("c"))
    assert is_closed(b)
    assert not is_closed(a)
    assert len(files) == 2


def test_files_in_use_are_not_closed_however_many(files):
    held = [files.acquire(name) for name in "abcdef"]
    assert not any(is_closed(file) for file in held)
    for file in held:
        files.release(file)
    assert len(files) == 2


def test_a_file_pinned_twice_stays_open_until_both_are_done(files):
    a = files.acquire("a")
    files.acquire("a")
    files.release(a)
    for name in "bcd":
        files.release(files.acquire(name))
    assert not is_closed(a)


def test_more_releases_than_pins_are_refused(files):
    a = files.acquire("a")
    files.release(a)
    with pytest.raises(RuntimeError, match="a is given back"):
        files.release(a)


def test_a_forgotten_idle_file_is_closed_at_once(files):
    a = files.acquire("a")
    files.release(a)
    files.forget("a")
    assert is_closed(a)
    assert len(files) == 0


def test_a_forgotten_file_in_use_is_closed_by_its_last_user(files):
    a = files.acquire("a")
    files.forget("a")
    again = files.acquire("a")
    assert again is not a
    files.release(a)
    assert is_closed(a)
    assert not is_closed(again)
    files.release(again)
    assert len(files) == 1


def test_forgetting_what_is_not_open_does_nothing(files):
    files.forget("a")
    assert len(files) == 0


class TestUnforced:
    """Limit two, so that one may wait for its force."""

    def write(self, files, path, data=b"data"):
        new = not files.filesystem.exists(path)
        file = files.acquire(path, create=True)
        file.write_some(0, [data])
        files.release_unforced(file, new)
        return file

    def on_disk(self, files):
        disk = files.filesystem.crash_clone(0, 0.0)
        return {
            name: disk.open(name).read(0, 9) for name in disk.list_directory("") if disk.open(name).size()
        }

    @pytest.fixture(autouse=True)
    def names_are_on_disk(self, files):
        files.filesystem.force_directory("")

    def test_what_was_written_is_on_disk_after_the_force_and_under_its_name(self, files):
        self.write(files, "a")
        self.write(files, "new", b"more")
        files.force()
        assert self.on_disk(files) == {"a": b"data", "new": b"more"}

    def test_a_file_with_unforced_bytes_is_not_closed_for_others(self, files):
        a = self.write(files, "a")
        for name in "bcdef":
            files.release(files.acquire(name))
        assert not is_closed(a)
        assert self.on_disk(files) == {}
        files.force()
        for name in "bcd":
            files.release(files.acquire(name))
        assert is_closed(a)

    def test_they_are_forced_before_they_take_more_than_half_of_the_places(self, files):
        a, b = self.write(files, "a"), self.write(files, "b")
        assert self.on_disk(files) == {"a": b"data", "b": b"data"}
        assert len(files) == 2
        files.release(files.acquire("c"))
        assert is_closed(a)
        assert not is_closed(b)

    def test_a_reader_in_between_does_not_make_it_forced(self, files):
        a = self.write(files, "a")
        assert files.acquire("a") is a
        files.release(a)
        for name in "bcd":
            files.release(files.acquire(name))
        assert not is_closed(a)
        files.acquire("a")
        files.force()
        assert self.on_disk(files) == {"a": b"data"}, "in use, too"
        files.release(a)
        assert len(files) == 2

    def test_a_force_goes_through_the_descriptor_that_wrote_and_forces_each_once(self, files, monkeypatch):
        forced = []
        monkeypatch.setattr(files.filesystem, "force_files", forced.append)
        a = self.write(files, "a")
        files.force()
        files.force()
        assert forced == [[a], []]

    def test_a_failed_force_is_told_and_nothing_passes_for_forced(self, files):
        a = self.write(files, "a")
        failing = FaultFilesystem(files.filesystem, FaultPlan([Fault(Operation.FORCE_DIRECTORY, 1)]))
        self.write(files, "new")
        files.filesystem, inner = failing, files.filesystem
        with pytest.raises(OSError, match="Input/output"):
            files.force()
        assert "new" not in inner.crash_clone(0, 0.0).list_directory("")
        assert not is_closed(a)

    def test_a_forgotten_one_is_closed_for_it_is_about_to_go(self, files):
        a = self.write(files, "a")
        files.forget("a")
        assert is_closed(a)
        files.force()

    def test_closing_does_not_force(self, files):
        a = self.write(files, "a")
        files.close()
        assert is_closed(a)
        assert self.on_disk(files) == {}


def test_closing_closes_what_nobody_uses(files):
    a, b = files.acquire("a"), files.acquire("b")
    files.release(a)
    files.close()
    assert is_closed(a)
    assert not is_closed(b)
