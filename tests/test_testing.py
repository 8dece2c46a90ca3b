"""The crash model and the fault plans: what they leave must be possible, and all possible must come."""

import errno
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from journal.filesystem import write_fully
from journal.testing import (
    CHANGES,
    Fault,
    FaultFilesystem,
    FaultPlan,
    ManualClock,
    MemoryFilesystem,
    Operation,
    PowerCut,
    cut_power_at,
)
from journal.testing.pages import PAGE, SECTOR

SEEDS = range(60)


def new_file(fs, path="a"):
    """A file whose name is durable."""
    file = fs.open(path, create=True)
    fs.force_directory("")
    return file


def page(letter):
    return letter * PAGE


def outcomes(fs, look, survive=0.5):
    return {look(fs.crash_clone(seed, survive)) for seed in SEEDS}


def whole(fs, path="a"):
    file = fs.open(path)
    return file.read(0, file.size())


def listing(fs, path=""):
    return tuple(fs.list_directory(path))


# -- files -------------------------------------------------------------------------------------------


def test_forced_bytes_survive_every_crash():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [b"forced" * 3_000])
    file.force()
    assert outcomes(fs, whole) == {b"forced" * 3_000}


def test_of_unforced_pages_any_may_survive_without_the_others():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"-") * 3])
    file.force()
    for number, letter in enumerate((b"a", b"b", b"c")):
        file.write_some(number * PAGE, [page(letter)])
    found = outcomes(fs, lambda clone: bytes(whole(clone)[PAGE // 2 :: PAGE]))
    possible = {bytes(letters) for letters in product(b"-a", b"-b", b"-c")}
    assert found == possible, "a later page without an earlier one, among others"


def test_an_earlier_version_of_a_page_may_be_the_one_that_survives():
    fs = MemoryFilesystem()
    file = new_file(fs)
    for letter in (b"a", b"b", b"c"):
        file.write_some(0, [page(letter)])
    whole_pages = {data for data in outcomes(fs, whole) if len(set(data)) == 1}
    assert whole_pages == {page(letter) for letter in (b"\0", b"a", b"b", b"c")}


def test_a_page_may_be_torn_between_sectors_but_not_inside_one():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"a")])
    file.force()
    file.write_some(0, [page(b"b")])
    torn = {data for data in outcomes(fs, whole) if len(set(data)) > 1}
    assert torn
    for data in torn:
        assert {data[start : start + SECTOR] for start in range(0, PAGE, SECTOR)} <= {
            b"a" * SECTOR,
            b"b" * SECTOR,
        }


def test_a_file_may_be_longer_than_the_bytes_that_survived_and_reads_zeros_there():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"a") * 3])
    found = outcomes(fs, whole)
    assert {len(data) for data in found} == {0, PAGE, 2 * PAGE, 3 * PAGE}
    assert page(b"\0") * 2 + page(b"a") in found


def test_lengths_reach_the_disk_in_their_order():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"a") * 2])
    file.force()
    file.truncate(0)
    file.truncate(2 * PAGE)
    assert outcomes(fs, whole) == {page(b"a") * 2, b"", page(b"\0") * 1, page(b"\0") * 2}


def test_bytes_written_where_the_file_was_cut_survive_only_with_the_cut():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [b"a" * 5000])
    file.force()
    file.truncate(0)
    file.write_some(0, [page(b"b")])
    assert {data[:1] + data[4999:] for data in outcomes(fs, whole)} == {b"aa", b"", b"\0", b"b"}


def test_the_page_that_a_cut_ends_in_stays_in_place_and_may_be_written_without_the_cut():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [b"a" * 5_000])
    file.force()
    file.truncate(1_000)
    file.write_some(500, [b"b" * 10])
    found = {(data[500:501], data[1_000:1_001], data[4_999:]) for data in outcomes(fs, whole)}
    cut = {(b"a", b"", b""), (b"b", b"", b"")}
    torn = (b"b", b"a", b"a")
    assert found == {*cut, torn, (b"a", b"a", b"a"), (b"a", b"\0", b"a"), (b"b", b"\0", b"a")}


def test_the_extremes_keep_nothing_or_everything():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [b"a" * 10_000])
    file.force()
    file.write_some(5_000, [b"b" * 10_000])
    file.truncate(12_000)
    fs.rename("a", "b")
    fs.make_directory("d")
    nothing = outcomes(fs, lambda clone: (listing(clone), whole(clone, "a")), survive=0)
    assert nothing == {(("a",), b"a" * 10_000)}
    everything = outcomes(fs, lambda clone: (listing(clone), whole(clone, "b")), survive=1)
    assert everything == {(("b", "d"), b"a" * 5_000 + b"b" * 7_000)}


def test_without_a_chance_given_the_seed_draws_the_extremes_too():
    fs = MemoryFilesystem()
    file = new_file(fs)
    for number in range(16):
        file.write_some(number * PAGE, [page(b"a")])
    survived = {whole(fs.crash_clone(seed)).count(b"a") // PAGE for seed in SEEDS}
    assert {0, 16} < survived


def test_the_same_seed_leaves_the_same_files():
    def build():
        fs = MemoryFilesystem()
        for name in "abcdef":
            fs.open(name, create=True).write_some(0, [name.encode() * 9_000])
        fs.rename("a", "g")
        return fs

    for seed in SEEDS:
        one, other = (build().crash_clone(seed) for _ in range(2))
        assert [(name, whole(one, name)) for name in listing(one)] == [
            (name, whole(other, name)) for name in listing(other)
        ]


def test_what_a_crash_left_is_durable():
    fs = MemoryFilesystem()
    fs.open("a", create=True).write_some(0, [b"x" * 50_000])
    left = fs.crash_clone(3, survive=0.7)
    again = outcomes(left, lambda clone: [(name, whole(clone, name)) for name in listing(clone)].__repr__())
    assert again == {repr([(name, whole(left, name)) for name in listing(left)])}
    before = whole(left)
    left.open("a").write_some(0, [b"y" * 50_000])
    assert before != b"y" * 50_000
    assert whole(left.crash_clone(0, survive=0)) == before


def test_a_clone_has_no_part_in_what_happens_later():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [b"a"])
    file.force()
    clones = [fs.crash_clone(1), fs.kill_clone()]
    file.write_some(0, [b"b"])
    file.force()
    fs.unlink("a")
    assert [whole(clone) for clone in clones] == [b"a", b"a"]
    clones[1].open("a").write_some(0, [b"c"])
    assert whole(clones[0]) == b"a"
    assert file.read(0, 1) == b"b"


def test_a_clone_does_not_find_what_was_written_after_it_was_made():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"a")])
    killed = fs.kill_clone()
    file.write_some(0, [page(b"b")])
    assert {data[:1] for data in outcomes(killed, whole)} == {b"", b"\0", b"a"}


def test_a_killed_process_leaves_all_readable_and_nothing_more_durable():
    fs = MemoryFilesystem()
    file = new_file(fs)
    file.write_some(0, [page(b"a")])
    file.force()
    file.write_some(0, [page(b"b") * 2])
    fs.open("new", create=True)
    fs.rename("a", "c")
    killed = fs.kill_clone()
    assert (listing(killed), whole(killed, "c")) == (("c", "new"), page(b"b") * 2)
    lost = killed.crash_clone(0, survive=0)
    assert (listing(lost), whole(lost, "a")) == (("a",), page(b"a"))
    killed.open("c").force()
    killed.force_directory("")
    kept = killed.crash_clone(0, survive=0)
    assert (listing(kept), whole(kept, "c")) == (("c", "new"), page(b"b") * 2)


def test_clones_start_unlocked():
    fs = MemoryFilesystem()
    fs.lock("lock")
    fs.force_directory("")
    fs.crash_clone(0).lock("lock")
    fs.kill_clone().lock("lock")


# -- failed forces -----------------------------------------------------------------------------------


def failed_force(**fault):
    """A file on which a force has failed: `old` was durable, `new` is what reads give."""
    fs = MemoryFilesystem()
    file = new_file(FaultFilesystem(fs, FaultPlan([Fault(Operation.FORCE, nth=2, **fault)])))
    write_fully(file, 0, [page(b"o")])
    file.force()
    write_fully(file, 0, [page(b"n") * 2])
    with pytest.raises(OSError, match="as planned"):
        file.force()
    return fs, file


def test_after_a_failed_force_reads_give_the_new_bytes_and_a_later_force_does_not_write_them():
    fs, file = failed_force()
    assert file.read(0, 2 * PAGE) == page(b"n") * 2
    file.force()
    assert file.read(0, 2 * PAGE) == page(b"n") * 2
    assert page(b"o") + page(b"\0") in outcomes(fs, whole)
    assert outcomes(fs, whole, survive=0) == outcomes(fs, whole, survive=1) == {page(b"o") + page(b"\0")}


def test_pages_of_a_failed_force_stay_clean_in_the_next_process():
    fs, _ = failed_force()
    killed = fs.kill_clone()
    killed.open("a").force()
    assert whole(killed) == page(b"n") * 2
    assert whole(killed.crash_clone(0, survive=0)) == page(b"o") + page(b"\0")


def test_pages_of_a_failed_force_that_leave_the_cache_are_read_as_the_disk_has_them():
    fs, _ = failed_force()
    new, old = page(b"n") * 2, page(b"o") + page(b"\0")
    found = set()
    for seed in range(60):
        killed = fs.kill_clone(seed)
        seen = whole(killed)
        found.add(seen)
        for number in range(2):
            part = slice(number * PAGE, (number + 1) * PAGE)
            assert seen[part] in (new[part], old[part])
            if seen[part] == old[part]:
                assert whole(killed.crash_clone(seed))[part] in (old[part], b""), "the disk has nothing else"
    assert len(found) == 4
    fs.open("forced", create=True).write_some(0, [b"f"])
    fs.open("forced").force()
    fs.open("dirty", create=True).write_some(0, [b"d"])
    assert all(
        whole(fs.kill_clone(seed), name) == name[:1].encode()
        for seed in range(9)
        for name in ("forced", "dirty")
    )


def test_rewriting_what_a_failed_force_lost_makes_it_durable():
    fs, _ = failed_force(error=errno.ENOSPC)
    killed = fs.kill_clone()
    file = killed.open("a")
    write_fully(file, 0, [file.read(0, file.size())])
    file.force()
    assert outcomes(killed, whole) == {page(b"n") * 2}


def test_a_cut_makes_lost_pages_go_for_good():
    fs, file = failed_force()
    file.truncate(0)
    file.truncate(PAGE + 10)
    file.force()
    assert outcomes(fs, whole) == {bytes(PAGE + 10)}


def test_a_cut_that_is_durable_keeps_older_bytes_from_coming_back_where_a_force_failed():
    fs = MemoryFilesystem()
    plan = FaultPlan([Fault(Operation.FORCE, nth=2)])
    file = new_file(FaultFilesystem(fs, plan))
    write_fully(file, 0, [page(b"o")])
    file.force()
    file.truncate(0)
    write_fully(file, 0, [page(b"n")])
    with pytest.raises(OSError, match="as planned"):
        file.force()
    file.force()
    assert {data for data in outcomes(fs, whole) if len(set(data)) == 1} == {page(b"\0"), page(b"n")}
    assert not any(b"o" in data for data in outcomes(fs, whole))


def test_a_lost_page_does_not_come_back_over_one_written_and_forced_later():
    fs, file = failed_force()
    write_fully(file, 0, [page(b"x") * 2])
    file.force()
    assert outcomes(fs, whole) == {page(b"x") * 2}


# -- properties of a file's content ------------------------------------------------------------------


class ContentMachine(RuleBasedStateMachine):
    """Random writes, cuts and forces beside a plain model; every clone is checked byte by byte."""

    def __init__(self):
        super().__init__()
        self.fs = MemoryFilesystem()
        self.file = new_file(self.fs)
        self.data = b""
        self.forced = b""
        self.history = [b""]
        self.seed = 0

    def now(self, data):
        self.data = data
        self.history.append(data)

    @rule(
        position=st.integers(0, 3 * PAGE), length=st.integers(1, 2 * PAGE), letter=st.sampled_from(b"abcdef")
    )
    def write(self, position, length, letter):
        write_fully(self.file, position, [bytes([letter]) * length])
        grown = self.data.ljust(position, b"\0")
        self.now(grown[:position] + bytes([letter]) * length + grown[position + length :])

    @rule(length=st.integers(0, 4 * PAGE))
    def truncate(self, length):
        self.file.truncate(length)
        self.now(self.data[:length].ljust(length, b"\0"))

    @rule()
    def force(self):
        self.file.force()
        self.history = [self.data]

    @rule()
    def restart(self):
        self.fs = self.fs.kill_clone()
        self.file = self.fs.open("a")

    @invariant()
    def reads_give_what_was_written(self):
        assert whole(self.fs) == self.data

    @invariant()
    def a_clone_invents_no_bytes_and_keeps_what_never_changed(self):
        self.seed += 1
        found = whole(self.fs.crash_clone(self.seed))
        longest = max(len(data) for data in self.history)
        assert min(len(data) for data in self.history) <= len(found) <= longest
        padded = [data.ljust(longest, b"\0") for data in self.history]
        for start in range(0, len(found), SECTOR):
            end = min(start + SECTOR, len(found))
            cut_anywhere = {data[start:end] for data in padded} | {bytes(end - start)}
            assert found[start:end] in cut_anywhere
        for position in range(0, min(len(data) for data in self.history), 97):
            if len({data[position] for data in self.history}) == 1:
                assert found[position] == self.data[position]

    @invariant()
    def beyond_the_end_of_a_clone_there_is_nothing(self):
        self.seed += 1
        clone = self.fs.crash_clone(self.seed)
        file = clone.open("a")
        size = file.size()
        file.truncate(size + 5 * PAGE)
        assert file.read(size, 6 * PAGE) == bytes(5 * PAGE)

    @invariant()
    def the_extremes_are_exact(self):
        assert whole(self.fs.crash_clone(0, survive=0)) == self.history[0]
        assert whole(self.fs.crash_clone(0, survive=1)) == self.data


TestContent = ContentMachine.TestCase


# -- names -------------------------------------------------------------------------------------------


def durable(*names):
    fs = MemoryFilesystem()
    for name in names:
        file = fs.open(name, create=True)
        file.write_some(0, [name.encode()])
        file.force()
    fs.force_directory("")
    return fs


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


# -- faults ------------------------------------------------------------------------------------------


def test_the_nth_operation_of_a_kind_and_path_fails_and_no_other():
    plan = FaultPlan([Fault(Operation.WRITE, nth=2, path="journal/*", error=errno.ENOSPC)])
    fs = FaultFilesystem(MemoryFilesystem(), plan)
    fs.make_directory("journal")
    other, file = fs.open("other", create=True), fs.open("journal/1", create=True)
    for _ in range(3):
        other.write_some(0, [b"x"])
    file.write_some(0, [b"x"])
    with pytest.raises(OSError, match="No space left") as caught:
        file.write_some(1, [b"y"])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "journal/1")
    assert file.write_some(1, [b"z"]) == 1
    assert file.read(0, 9) == b"xz"


def test_a_fault_can_strike_again_and_again():
    fs = FaultFilesystem(MemoryFilesystem(), FaultPlan([Fault(Operation.FORCE, nth=2, times=2)]))
    file = fs.open("a", create=True)
    results = []
    for _ in range(5):
        try:
            file.force()
        except OSError as error:
            results.append(error.errno)
        else:
            results.append(None)
    assert results == [None, errno.EIO, errno.EIO, None, None]


def test_a_write_can_be_short_and_can_fail_half_way():
    faults = [Fault(Operation.WRITE, 1, error=None, short=2), Fault(Operation.WRITE, 2, short=3)]
    file = FaultFilesystem(MemoryFilesystem(), FaultPlan(faults)).open("a", create=True)
    assert file.write_some(0, [b"a", b"bcd"]) == 2
    with pytest.raises(OSError, match="as planned"):
        file.write_some(2, [b"cdefgh"])
    assert file.read(0, 9) == b"abcde"


ATTEMPTS = {
    Operation.OPEN: lambda fs: fs.open("a"),
    Operation.CREATE: lambda fs: fs.open("new", create=True),
    Operation.READ: lambda fs: fs.open("a").read(0, 1),
    Operation.READ_NOW: lambda fs: fs.open("a").read_now(0, 1),
    Operation.WRITE: lambda fs: fs.open("a").write_some(0, [b"x"]),
    Operation.FORCE: lambda fs: fs.open("a").force(),
    Operation.TRUNCATE: lambda fs: fs.open("a").truncate(0),
    Operation.RENAME: lambda fs: fs.rename("a", "b"),
    Operation.UNLINK: lambda fs: fs.unlink("a"),
    Operation.MAKE_DIRECTORY: lambda fs: fs.make_directory("d"),
    Operation.REMOVE_DIRECTORY: lambda fs: fs.remove_directory("e"),
    Operation.LIST_DIRECTORY: lambda fs: fs.list_directory(""),
    Operation.FORCE_DIRECTORY: lambda fs: fs.force_directory(""),
    Operation.LOCK: lambda fs: fs.lock("lock"),
    Operation.FREE_BYTES: lambda fs: fs.free_bytes(),
}


def ready(**plan):
    inner = durable("a")
    inner.make_directory("e")
    return FaultFilesystem(inner, FaultPlan(**plan))


@pytest.mark.parametrize("kind", Operation)
def test_every_kind_of_operation_is_counted_and_can_fail_without_effect(kind):
    fs = ready()
    ATTEMPTS[kind](fs)
    assert fs.plan.counts[kind] == 1
    fs = ready(faults=[Fault(kind, error=errno.EROFS)])
    with pytest.raises(OSError, match="Read-only"):
        ATTEMPTS[kind](fs)
    assert (listing(fs.inner), whole(fs.inner)) == (("a", "e"), b"a")


@pytest.mark.parametrize("kind", Operation)
def test_the_hook_is_called_before_what_changes_state_and_only_then(kind):
    calls = []
    fs = ready(on_operation=lambda *call: calls.append((*call, listing(fs.inner), whole(fs.inner))))
    ATTEMPTS[kind](fs)
    assert [call[0] for call in calls] == [kind] * (kind in CHANGES)
    assert all(call[2:] == (("a", "e"), b"a") for call in calls)


@pytest.mark.parametrize("kind", Operation)
def test_after_a_power_cut_nothing_works_and_nothing_changes(kind):
    fs = ready(on_operation=cut_power_at(1))
    file = fs.open("a")
    with pytest.raises(PowerCut, match="before write of 'a', state-changing operation 1"):
        file.write_some(0, [b"x"])
    with pytest.raises(PowerCut):
        ATTEMPTS[kind](fs)
    file.close()
    assert (listing(fs.inner), whole(fs.inner)) == (("a", "e"), b"a")


def test_no_handler_of_the_code_under_test_survives_a_power_cut():
    assert not issubclass(PowerCut, Exception)


def test_the_power_is_cut_at_exactly_the_operation_asked_for():
    fs = ready(on_operation=cut_power_at(3))
    file = fs.open("a")
    file.write_some(0, [b"1"])
    file.write_some(1, [b"2"])
    with pytest.raises(PowerCut):
        file.write_some(2, [b"3"])
    assert whole(fs.inner) == b"12"


def test_a_read_that_must_not_wait_can_be_made_to_wait():
    fs = ready(faults=[Fault(Operation.READ_NOW, error=errno.EAGAIN)])
    file = fs.open("a")
    assert file.read_now(0, 1) is None
    assert file.read_now(0, 1) == b"a"


def test_the_free_bytes_are_what_the_plan_says():
    fs = ready(free_bytes=123)
    assert fs.free_bytes() == 123
    fs.plan.free_bytes = None
    assert fs.free_bytes() == fs.inner.free_bytes()


# -- the clock ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**9)))
def test_a_manual_clock_moves_both_times_by_what_it_is_told(steps):
    clock = ManualClock(monotonic=5, wall=1_000)
    for step in steps:
        clock.advance(step)
    assert (clock.monotonic(), clock.wall()) == (5 + sum(steps), 1_000 + sum(steps))


def test_only_the_wall_clock_can_be_set_back():
    clock = ManualClock(monotonic=5, wall=1_000)
    clock.set_wall(10)
    assert (clock.monotonic(), clock.wall()) == (5, 10)
    with pytest.raises(ValueError, match="does not run backwards"):
        clock.advance(-1)
