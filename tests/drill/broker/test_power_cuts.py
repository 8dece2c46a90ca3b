"""What a process has not forced dies with it; what it has forced does not; and meanwhile it sees its own writes."""

import contextlib
import os
from random import Random

import pytest

from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import OSFilesystem, write_fully
from tests.support.filesystem_conformance import FilesystemConformance
from txbroker.drill.broker.power_cuts import UnforcedIsLost, holding


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


class Tidy(UnforcedIsLost):
    """Closes at the end what a test opened: with hundreds left open, later tests find no descriptor for `select`."""

    def __init__(self, *given):
        super().__init__(*given)
        self.files = []

    def open(self, *given, **named):
        self.files.append(super().open(*given, **named))
        return self.files[-1]

    def close(self):
        for file in self.files:
            file.close()


@pytest.fixture
def fs(root):
    with contextlib.closing(Tidy(root, 0.0)) as tidy:
        yield tidy


class TestUnforcedIsLost(FilesystemConformance):
    @pytest.fixture(params=[0.0, 0.5, 1.0])
    def fs(self, root, request):
        with contextlib.closing(Tidy(root, request.param, 1)) as tidy:
            yield tidy


def left(root):
    """What a next process finds."""
    return {
        os.fspath(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


def written(fs, path, data, position=0):
    file = fs.open(path, create=True)
    write_fully(file, position, [data])
    return file


def test_bytes_and_names_stay_behind_only_once_both_are_forced(fs, root):
    file = written(fs, "a", b"x" * 5000)
    file.force()
    assert left(root) == {}
    fs.force_directory("")
    assert left(root) == {"a": b"x" * 5000}
    write_fully(file, 4990, [b"y" * 5000])
    assert file.read(4985, 10) == b"xxxxxyyyyy"
    assert left(root) == {"a": b"x" * 5000}
    file.force()
    assert left(root) == {"a": b"x" * 4990 + b"y" * 5000}


def test_a_cut_is_undone_and_a_name_that_was_taken_away_is_there_again(fs, root):
    for name in ("a", "b"):
        written(fs, name, b"old " + name.encode()).force()
    fs.force_directory("")
    fs.open("a").truncate(1)
    fs.unlink("b")
    assert (fs.open("a").read(0, 9), fs.exists("b")) == (b"o", False)
    assert left(root) == {"a": b"old a", "b": b"old b"}
    fs.open("a").force()
    fs.force_directory("")
    assert left(root) == {"a": b"o"}


def test_what_was_cut_off_never_comes_back(fs, root):
    file = written(fs, "a", b"x" * 9000)
    file.force()
    fs.force_directory("")
    file.truncate(5)
    write_fully(file, 20, [b"y"])
    assert file.read(0, 99) == b"xxxxx" + bytes(15) + b"y"
    file.force()
    assert left(root) == {"a": b"xxxxx" + bytes(15) + b"y"}


def test_a_rename_over_another_file_is_one_step(fs, root):
    written(fs, "a", b"old").force()
    fs.force_directory("")
    written(fs, "a.tmp", b"new").force()
    fs.rename("a.tmp", "a")
    assert fs.open("a").read(0, 9) == b"new"
    assert left(root) == {"a": b"old"}
    fs.force_directory("")
    assert left(root) == {"a": b"new"}


def test_a_directory_is_lost_with_all_in_it_until_the_one_above_is_forced(fs, root):
    fs.make_directory("d")
    written(fs, "d/a", b"x").force()
    fs.force_directory("d")
    assert left(root) == {}
    fs.force_directory("")
    assert left(root) == {"d/a": b"x"}


def test_files_without_a_name_go_with_the_next_process(fs, root):
    written(fs, "a", b"x")
    assert list(holding(root).iterdir())
    UnforcedIsLost(root)
    assert not holding(root).exists()


def do(fs, step, name, to, position, data):
    """One random step; nothing if there is no such file."""
    if step == "write":
        written(fs, name, data, position).close()
    elif step == "name":
        fs.force_directory(name[:-2])
    elif not fs.exists(name):
        return
    elif step == "rename":
        fs.rename(name, to)
    elif step == "unlink":
        fs.unlink(name)
    else:
        file = fs.open(name)
        file.force() if step == "force" else file.truncate(position)
        file.close()


def seen(fs, names):
    contents = {}
    for name in filter(fs.exists, names):
        with contextlib.closing(fs.open(name)) as file:
            contents[name] = file.read(0, 20_000)
    return contents


@pytest.mark.sampled
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_it_shows_what_memory_shows_whatever_is_done_and_keeps_what_was_forced(root, share):
    """2,000 random steps on both; then all is forced, and the operating system's files say the same."""
    random = Random(7)
    fs, model = UnforcedIsLost(root, share, 3), MemoryFilesystem()
    names = ["a", "b", "d/a", "d/b"]
    for each in (fs, model):
        each.make_directory("d")
    for _ in range(2000):
        name = random.choice(names)
        step = random.choice(("write", "write", "cut", "force", "name", "rename", "unlink"))
        position, data = random.choice((0, 100, 4000, 9000)), random.randbytes(random.choice((1, 500, 5000)))
        to = name[:-1] + random.choice("ab")
        for each in (fs, model):
            do(each, step, name, to, position, data)
        assert seen(fs, names) == seen(model, names)
    for name in seen(fs, names):
        with contextlib.closing(fs.open(name)) as file:
            file.force()
    for directory in ("d", ""):
        fs.force_directory(directory)
    assert left(root) == seen(OSFilesystem(root), names) == seen(model, names)
