"""Test the crash model of names: only a force of its directory makes a name survive for certain."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from journal.testing import (
    MemoryFilesystem,
)
from tests.testing.crash_outcomes import SEEDS, durable, listing, outcomes, whole


def contents(fs, path=""):
    prefix = f"{path}/" if path else ""
    return tuple((name, whole(fs, prefix + name).decode()) for name in fs.list_directory(path))


def test_a_new_file_may_vanish_until_its_directory_is_forced():
    fs = durable()
    fs.open("a", create=True).force()
    assert outcomes(fs, listing) == {(), ("a",)}
    fs.force_directory("")
    assert outcomes(fs, listing) == {("a",)}


def test_an_unforced_rename_leaves_the_old_or_the_new_name_never_both_or_neither():
    fs = durable("a", "b")
    fs.rename("a", "b")
    assert outcomes(fs, contents) == {(("a", "a"), ("b", "b")), (("b", "a"),)}
    fs.force_directory("")
    assert outcomes(fs, contents) == {(("b", "a"),)}


@pytest.mark.slow
def test_an_unforced_unlink_may_bring_the_file_back():
    fs = durable("a")
    fs.unlink("a")
    assert outcomes(fs, contents) == {(), (("a", "a"),)}
    fs.force_directory("")
    assert outcomes(fs, contents) == {()}


def test_names_in_one_directory_survive_independently():
    fs = durable("a", "b")
    fs.unlink("a")
    fs.rename("b", "c")
    fs.open("d", create=True)
    assert len(outcomes(fs, listing)) == 8


def test_a_file_written_aside_and_renamed_replaces_the_old_one_whole_or_not_at_all():
    fs = durable("a")
    for text in ("second", "third"):
        file = fs.open("tmp", create=True)
        file.write_some(0, [text.encode()])
        file.force()
        fs.rename("tmp", "a")
    found = outcomes(fs, lambda clone: dict(contents(clone))["a"])
    assert found == {"a", "second", "third"}


def test_recycled_files_never_lose_both_of_their_names():
    fs = durable("1", "spare")
    fs.rename("spare", "2")
    fs.rename("1", "spare")
    fs.rename("spare", "3")
    for clone in (fs.crash_clone(seed, 0.5) for seed in SEEDS):
        assert sorted(text for _, text in contents(clone)) == ["1", "spare"]


def test_a_name_that_changed_hands_twice_costs_nobody_his_file():
    fs = durable("x", "y", "z")
    for old, new in (("x", "p"), ("y", "x"), ("x", "q"), ("z", "x")):
        fs.rename(old, new)
    for clone in (fs.crash_clone(seed, 0.5) for seed in SEEDS):
        assert sorted(text for _, text in contents(clone)) == ["x", "y", "z"]


def test_a_forced_move_is_not_undone_by_an_older_file_that_it_replaced():
    fs = durable()
    fs.make_directory("d")
    fs.open("d/a", create=True).write_some(0, [b"new"])
    fs.open("d/a").force()
    fs.force_directory("d")
    fs.force_directory("")
    fs.open("a", create=True)
    fs.rename("d/a", "a")
    fs.force_directory("d")
    assert outcomes(fs, whole) == {b"new"}


def test_a_directory_vanishes_with_all_that_was_forced_inside_unless_its_own_name_was():
    fs = durable()
    fs.make_directory("d")
    fs.open("d/a", create=True).force()
    fs.force_directory("d")
    assert outcomes(fs, listing) == {(), ("d",)}
    fs.force_directory("")
    assert outcomes(fs, lambda clone: listing(clone, "d")) == {("a",)}


def test_a_removed_directory_may_come_back():
    fs = durable()
    fs.make_directory("d")
    fs.force_directory("")
    fs.remove_directory("d")
    assert outcomes(fs, listing) == {(), ("d",)}


def test_a_move_to_another_directory_is_durable_when_either_is_forced():
    for forced in ("", "d"):
        fs = durable("a")
        fs.make_directory("d")
        fs.rename("a", "d/b")
        assert outcomes(fs, lambda c: c.exists("a") + (c.exists("d") and c.exists("d/b"))) == {1}
        fs.force_directory(forced)
        fs.rename("d/b", "d/c")
        assert outcomes(fs, lambda c: (c.exists("a"), listing(c, "d"))) == {(False, ("b",)), (False, ("c",))}


def test_a_file_moved_into_a_new_directory_of_a_new_directory_is_somewhere():
    fs = durable("a")
    fs.make_directory("d")
    fs.make_directory("d/e")
    fs.rename("a", "d/e/b")
    assert outcomes(fs, lambda c: c.exists("a") + c.exists("d/e/b")) == {1}
    fs.force_directory("")
    assert outcomes(fs, lambda c: whole(c, "d/e/b")) == {b"a"}


def test_a_file_moved_out_survives_the_removal_of_its_directory():
    fs = durable()
    fs.make_directory("d")
    fs.open("d/a", create=True).force()
    fs.force_directory("d")
    fs.force_directory("")
    fs.rename("d/a", "a")
    fs.remove_directory("d")
    assert outcomes(fs, listing) == {("a",), ("d",), ("a", "d")}
    assert outcomes(fs, lambda clone: clone.exists("a") or clone.exists("d/a")) == {True}


class NamesMachine(RuleBasedStateMachine):
    """Random names; each file holds its own number, so clones tell who is where."""

    names = st.sampled_from(["a", "b", "c", "d/a", "d/b", "e/a"])

    def __init__(self):
        super().__init__()
        self.fs = MemoryFilesystem()
        for directory in "de":
            self.fs.make_directory(directory)
        self.fs.force_directory("")
        self.model = {}
        self.serial = 0
        self.seed = 0
        self.past = {}
        self.gone = set()
        self.safe = set()
        self.dirty = set()

    def touch(self, number, *paths):
        for path in paths:
            self.past.setdefault(number, set()).add(path)
            self.dirty.add(path.rpartition("/")[0])

    def end(self, path):
        if path in self.model:
            self.gone.add(self.model.pop(path))

    @rule(path=names)
    def create(self, path):
        if path not in self.model:
            self.serial += 1
            file = self.fs.open(path, create=True)
            file.write_some(0, [b"%d" % self.serial])
            file.force()
            self.model[path] = self.serial
            self.touch(self.serial, path)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new=names)
    def rename(self, data, new):
        old = data.draw(st.sampled_from(sorted(self.model)))
        self.fs.rename(old, new)
        if old != new:
            number = self.model.pop(old)
            self.end(new)
            self.model[new] = number
            self.touch(number, old, new)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def unlink(self, data):
        path = data.draw(st.sampled_from(sorted(self.model)))
        self.fs.unlink(path)
        self.dirty.add(path.rpartition("/")[0])
        self.end(path)

    @rule(directory=st.sampled_from(["", "d", "e"]))
    def force(self, directory):
        self.fs.force_directory(directory)
        for path, number in self.model.items():
            if path.rpartition("/")[0] == directory:
                self.safe.add(number)
                self.past[number] = {path}
        self.dirty.discard(directory)

    @rule()
    def restart(self):
        self.fs = self.fs.kill_clone()

    def found(self, fs):
        paths = [
            f"{directory}/{name}".lstrip("/")
            for directory in ("", "d", "e")
            for name in fs.list_directory(directory)
        ]
        return {path: int(whole(fs, path)) for path in paths if path not in ("d", "e")}

    @invariant()
    def all_is_where_it_was_put(self):
        assert self.found(self.fs) == self.model
        assert self.found(self.fs.crash_clone(0, survive=1)) == self.model

    @invariant()
    def a_crash_leaves_each_file_at_one_of_its_places(self):
        for _ in range(3):
            self.seed += 1
            clone = self.found(self.fs.crash_clone(self.seed, 0.5))
            numbers = list(clone.values())
            assert len(numbers) == len(set(numbers)), "a file has two names"
            assert self.safe - self.gone <= set(numbers), "a file has neither of its names"
            for path, number in clone.items():
                assert path in self.past[number]

    @invariant()
    def forced_directories_are_as_they_were_forced(self):
        self.seed += 1
        clone = self.found(self.fs.crash_clone(self.seed, 0.5))
        for directory in {"", "d", "e"} - self.dirty:
            inside = {p: n for p, n in self.model.items() if p.rpartition("/")[0] == directory}
            assert {p: n for p, n in clone.items() if p.rpartition("/")[0] == directory} == inside


TestNames = NamesMachine.TestCase
