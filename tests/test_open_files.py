import pytest

from journal.open_files import OpenFiles
from journal.testing import MemoryFilesystem


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


def test_closing_closes_what_nobody_uses(files):
    a, b = files.acquire("a"), files.acquire("b")
    files.release(a)
    files.close()
    assert is_closed(a)
    assert not is_closed(b)
