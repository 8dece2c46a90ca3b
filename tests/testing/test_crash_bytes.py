"""Test the crash model of bytes: what of a file may survive a crash, in which mixtures, and what never may."""

from itertools import product

from journal.testing import (
    MemoryFilesystem,
)
from journal.testing.pages import PAGE, SECTOR, MemoryDiskFile
from tests.testing.crash_outcomes import SEEDS, listing, new_file, outcomes, page, whole


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


def test_a_file_that_is_cut_on_the_disk_and_grows_again_has_zeros_where_it_was_cut():
    disk = MemoryDiskFile()
    disk.store(dict.fromkeys(range(4), b"x" * PAGE), 4 * PAGE)
    disk.store({}, PAGE + 1)
    disk.store({}, 4 * PAGE)
    assert disk.read(0, 3) == [b"x" * PAGE, b"x" + bytes(PAGE - 1), bytes(PAGE), bytes(PAGE)]


def test_what_is_stored_behind_the_end_of_a_file_is_cut_off():
    disk = MemoryDiskFile()
    disk.store({0: b"x" * PAGE, 1: b"x" * PAGE}, 1)
    disk.store({}, 2 * PAGE)
    assert disk.read(0, 1) == [b"x" + bytes(PAGE - 1), bytes(PAGE)]
