"""Test the crash model over a real directory: what a process has not forced dies with it, wholly or in part.

Seen to fail: with a rename that does not keep the file it replaces, with a force that cuts no file.
"""

import os
import socket
from random import Random

import pytest

from journal.testing import MemoryFilesystem, PowerCutDirectory
from journal.testing.directory import holding
from journal.vfs.filesystem import OSFilesystem, write_fully
from tests.support.filesystem_conformance import FilesystemConformance


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def fs(root):
    return PowerCutDirectory(root)


class TestPowerCutDirectory(FilesystemConformance):
    pass


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


def test_a_file_that_is_open_is_read_whatever_becomes_of_its_name(fs, root):
    for name in ("a", "b"):
        written(fs, name, b"old " + name.encode()).force()
    fs.force_directory("")
    removed, replaced = fs.open("a"), fs.open("b")
    fs.unlink("a")
    written(fs, "c", b"new").force()
    fs.rename("c", "b")
    fs.force_directory("")
    assert (removed.read(0, 9), replaced.read(0, 9)) == (b"old a", b"old b")
    assert left(root) == {"b": b"new"}
    write_fully(removed, 0, [b"OLD"])
    removed.force()
    assert removed.read(0, 9) == b"OLD a"


def test_files_without_a_name_go_with_the_next_process(fs, root):
    written(fs, "a", b"x")
    assert list(holding(root).iterdir())
    PowerCutDirectory(root)
    assert not holding(root).exists()


NAMES = ["a", "b", "d/a", "d/b"]


def do(fs, step, name, to, position, data):
    """One random step; nothing if there is no such file."""
    if step == "write":
        written(fs, name, data, position)
    elif step == "name":
        fs.force_directory(name[:-2])
    elif not fs.exists(name):
        return
    elif step == "rename":
        fs.rename(name, to)
    elif step == "unlink":
        fs.unlink(name)
    elif step == "force":
        fs.open(name).force()
    else:
        fs.open(name).truncate(position)


def many_steps(random, count, *systems):
    """Do the same on all of them."""
    for each in systems:
        each.make_directory("d")
        each.force_directory("")
    for _ in range(count):
        name = random.choice(NAMES)
        step = random.choice(("write", "write", "cut", "force", "name", "rename", "unlink"))
        position, data = random.choice((0, 100, 4000, 9000)), random.randbytes(random.choice((1, 500, 5000)))
        to = random.choice(NAMES)
        for each in systems:
            do(each, step, name, to, position, data)


def seen(fs):
    return {name: fs.open(name).read(0, 20_000) for name in NAMES if fs.exists(name)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("survive", [0.0, 0.1, 0.5, 0.9, 1.0, None])
def test_a_power_cut_leaves_what_the_model_in_memory_says_byte_for_byte(tmp_path, survive):
    """Whatever was done, and forced or not: one model decides, once for real files and once for those in memory."""
    found = set()
    for seed in range(25):
        root = tmp_path / str(seed)
        root.mkdir()
        fs, model = PowerCutDirectory(root), MemoryFilesystem()
        many_steps(Random(seed), 40, fs, model)
        assert seen(fs) == seen(model)
        fs.cut_power(Random(seed), survive)
        after = model.crash_clone(seed, survive)
        assert left(root) == seen(after) == seen(fs) == seen(PowerCutDirectory(root))
        found.add(seen(after) == seen(model))
    assert found == {True} if survive == 1.0 else False in found, "something was lost"


def test_once_all_is_forced_nothing_is_lost(fs, root):
    model = MemoryFilesystem()
    many_steps(Random(7), 1000, fs, model)
    for name in seen(fs):
        fs.open(name).force()
    for directory in ("d", ""):
        fs.force_directory(directory)
    assert left(root) == seen(OSFilesystem(root)) == seen(model)
    fs.cut_power(Random(7), 0.5)
    assert left(root) == seen(model)


def test_a_process_that_dies_without_a_cut_leaves_what_was_forced(fs, root):
    model = MemoryFilesystem()
    many_steps(Random(3), 200, fs, model)
    assert left(root) == seen(model.crash_clone(0, 0.0))


def test_a_socket_that_a_killed_broker_has_left_is_no_file_of_the_disk(root):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(root / "admin.sock"))
    fs = PowerCutDirectory(root)
    written(fs, "a", b"x")
    assert fs.list_directory("") == ["a"]
    fs.cut_power(Random(1))
