"""What a start believes, what it refuses, and what it leaves as it was. docs/recovery.md has the table."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest

from journal import record
from journal.constants import BLOCK, KIB, START_STRIDE
from journal.errors import CorruptJournal, CorruptSegment, DirectoryLocked, OutcomeForgotten
from journal.journal_file import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    FileHeader,
    FileScan,
    body_checksum,
    pack_group_header,
)
from journal.record import Mark, TopicDeleted, TransactionsForgotten
from journal.testing import Fault, MemoryFilesystem, Operation
from journal.transaction import State, TransactionNumber
from tests.engine_room import Room, checkpoint_path, contents, damage, decide, journal_path, xid_of

BIG = b"v" * (40 * KIB)


def one_file(*, mark=False):
    """A journal file with the start's record, a topic and three sends, each in a group of its own."""
    room = Room()
    room.topic()
    for value in (b"0", b"1", b"2"):
        room.send(value)
    if mark:
        room.engine.mark()
        room.engine.sync()
    return room


def position_of_send(number):
    return FIRST_GROUP + (2 + number) * BLOCK


def rolled():
    """Three journal files, the older two full; no checkpoint."""
    room = Room()
    room.topic()
    while len(room.journals()) < 3:
        room.send(BIG)
    return room


def refusal(inner, error=CorruptJournal):
    """The start is refused, and every byte on the disk is as before."""
    before = contents(inner)
    with pytest.raises(error) as caught:
        Room(inner)
    assert contents(inner) == before, "a refusal must leave the evidence as it was"
    return caught.value


class TestProof:
    def test_what_was_only_in_the_page_cache_is_forced_before_it_is_believed(self):
        room = one_file()
        room.accept(b"written, not forced")
        room.engine.journal.write(room.engine.take())
        after = room.killed()
        assert after.values()[-1] == b"written, not forced"
        assert after.crashed(0, survive=0).values() == after.values()

    def test_what_a_failed_force_left_in_the_page_cache_is_written_again(self):
        room = one_file()
        room.plan.faults.append(Fault(Operation.FORCE, path="journal/*"))
        room.accept(b"lost by the kernel")
        with pytest.raises(Exception, match="as planned"):
            room.engine.sync()
        after = room.killed()
        assert after.values()[-1] == b"lost by the kernel"
        after.send(b"later")
        assert after.crashed(0, survive=0).values() == after.values()

    def test_what_is_proven_is_not_written_again(self):
        room = one_file(mark=True)
        inner = room.inner.kill_clone()
        after = Room(inner)
        old = journal_path(room.journals()[0])
        writes = [path for path in after.written if path == old]
        assert len(writes) == 1, "the MARK alone is without proof"

    def test_a_damaged_last_group_without_proof_ends_the_journal_there(self):
        room = one_file()
        inner = room.inner.crash_clone(0)
        damage(inner, journal_path(room.journals()[0]), position_of_send(2) + 60)
        after = Room(inner)
        assert after.values() == [b"0", b"1"]
        assert f"was torn at {position_of_send(2)}" in after.engine.report.notes[0]
        assert after.send(b"2 again") == 2
        assert after.crashed(1).values() == [b"0", b"1", b"2 again"]

    def test_the_torn_file_takes_no_new_records_and_stays_as_evidence(self):
        room = one_file()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        damage(inner, path, position_of_send(2) + 60)
        before = contents(inner)[path]
        after = Room(inner)
        after.send(b"x")
        assert contents(inner)[path] == before

    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("offset", [2, 30, 60])
    def test_damage_before_a_later_group_is_refused_with_file_position_and_advice(self, number, offset):
        room = one_file()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        damage(inner, path, position_of_send(number) + offset)
        error = refusal(inner)
        assert (error.path, error.position) == (path, position_of_send(number))
        assert "Restore this file from a copy" in str(error)

    def test_a_mark_proves_the_group_before_it(self):
        room = one_file(mark=True)
        inner = room.inner.crash_clone(0)
        damage(inner, journal_path(room.journals()[0]), position_of_send(2) + 60)
        refusal(inner)

    def test_a_checkpoint_proves_the_records_below_it(self):
        room = one_file()
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        inner.unlink("witness")
        damage(inner, journal_path(room.journals()[0]), position_of_send(2) + 60)
        assert "checkpoint" in str(refusal(inner))

    def test_the_next_file_proves_all_of_the_one_before_it(self):
        room = rolled()
        inner = room.inner.crash_clone(0)
        [first, *_] = room.journals()
        damage(inner, journal_path(first), FIRST_GROUP + 50)
        assert "next file" in str(refusal(inner))

    def test_zeros_are_never_a_record_and_end_the_journal_like_any_tear(self):
        room = one_file()
        inner = room.inner.crash_clone(0)
        damage(inner, journal_path(room.journals()[0]), position_of_send(2), bytes(BLOCK))
        assert Room(inner).values() == [b"0", b"1"]

    def test_a_group_copied_to_another_place_is_not_taken_for_the_one_that_belongs_there(self):
        room = one_file()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        copied = inner.open(path).read(position_of_send(1), BLOCK)
        damage(inner, path, position_of_send(3), copied)
        assert Room(inner).values() == [b"0", b"1", b"2"]

    def test_a_record_of_another_start_with_the_same_lsn_does_not_pass(self):
        one, other = one_file(), one_file()
        assert one.journals() == other.journals()
        path = journal_path(one.journals()[0])
        inner = one.inner.crash_clone(0)
        damage(inner, path, position_of_send(2), other.inner.open(path).read(position_of_send(2), BLOCK))
        assert "no crash damages a group's header" in str(refusal(inner))

    def test_a_record_left_at_the_right_place_by_an_older_group_is_not_taken_for_one_of_the_torn_group(self):
        salt, old, new = 5, 50, 100
        left = [record.pack(Mark(n), b"", record.seed(salt, old + n)) for n in range(2)]
        written = [record.pack(Mark(n), b"", record.seed(salt, new + n)) for n in range(2)]
        header = pack_group_header(sum(map(len, written)), 2, new, new - 1, body_checksum(written), salt)
        scan = FileScan(
            bytes(FIRST_GROUP) + header + written[0] + left[1], "j", FileHeader(new, 1, salt, 0, new)
        )
        assert (scan.partial, scan.next_lsn) == (1, new + 1)


class TestFiles:
    def test_a_second_start_of_the_same_directory_is_refused(self):
        room = one_file()
        with pytest.raises(DirectoryLocked):
            Room(room.inner)

    def test_a_refused_start_lets_the_directory_go(self):
        room = rolled()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        damage(inner, path, FIRST_GROUP + 50)
        refusal(inner)
        damage(inner, path, FIRST_GROUP + 50)
        assert Room(inner).values() == room.values()

    @pytest.mark.parametrize("copy", [0, 1])
    def test_one_copy_of_a_files_header_is_enough_and_the_other_is_named(self, copy):
        room = one_file()
        inner = room.inner.crash_clone(0)
        damage(inner, journal_path(room.journals()[0]), copy * BLOCK + 20)
        after = Room(inner)
        assert after.values() == [b"0", b"1", b"2"]
        [note] = after.engine.report.notes
        assert f"copy {copy} of its header, at {copy * BLOCK}, is damaged" in note

    @pytest.mark.parametrize("size", [0, 100, FIRST_GROUP])
    def test_an_empty_or_zero_filled_journal_file_is_refused(self, size):
        room = rolled()
        for lsn in room.journals():
            inner = room.inner.crash_clone(0)
            inner.open(journal_path(lsn)).truncate(0)
            inner.open(journal_path(lsn)).truncate(size)
            assert "both copies of its header" in str(refusal(inner))

    def test_a_missing_journal_file_in_the_middle_or_at_the_start_is_refused(self):
        room = rolled()
        first, middle, _ = room.journals()
        for lsn in (first, middle):
            inner = room.inner.crash_clone(0)
            inner.unlink(journal_path(lsn))
            error = refusal(inner)
            assert error.path == journal_path(lsn)
            assert f"{journal_path(lsn)} is missing" in str(error)

    def test_a_directory_that_lost_all_its_journal_files_is_refused(self):
        room = one_file()
        room.flush()
        inner = room.inner.crash_clone(0)
        inner.unlink(journal_path(room.journals()[0]))
        assert "the journal is missing" in str(refusal(inner))

    def test_a_missing_newest_file_is_noticed_when_a_checkpoint_lies_in_it(self):
        room = rolled()
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        inner.unlink(journal_path(room.journals()[-1]))
        inner.unlink("witness")
        assert "records are missing" in str(refusal(inner))

    @pytest.mark.parametrize("size", [FIRST_GROUP, FIRST_GROUP + 10, FIRST_GROUP + 3 * BLOCK, 60 * KIB])
    def test_a_newest_file_that_is_shorter_than_it_was_begun_is_refused(self, size):
        room = one_file()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        inner.open(path).truncate(size)
        error = refusal(inner)
        assert error.path == path
        assert f"the file has {size} bytes of the {64 * KIB} with which it was begun" in str(error)

    def test_an_older_file_that_was_cut_behind_its_records_is_told(self):
        room = one_file().stopped()
        inner = room.inner.crash_clone(0)
        inner.open(journal_path(room.journals()[0])).truncate(60 * KIB)
        after = Room(inner)
        assert after.values() == [b"0", b"1", b"2"]
        assert "all its records are there" in after.engine.report.notes[0]

    @pytest.mark.parametrize("bit", range(8 * GROUP_HEADER_BYTES))
    def test_a_turned_bit_in_the_last_groups_header_is_not_taken_for_a_tear(self, bit):
        room = one_file()
        inner = room.inner.crash_clone(0)
        path = journal_path(room.journals()[0])
        position = position_of_send(2)
        [old] = inner.open(path).read(position + bit // 8, 1)
        damage(inner, path, position + bit // 8, bytes([old ^ 1 << bit % 8]))
        error = refusal(inner)
        assert (error.path, error.position) == (path, position)

    def test_groups_that_an_earlier_use_of_the_file_left_are_not_taken_for_damaged_ones(self):
        room = Room()
        room.topic()
        while not any("recycled" in name for name in room.inner.list_directory("journal")):
            room.send(BIG)
            room.send(b"small")
            room.checkpoint()
        for _ in range(8):
            room.send(b"small")
            after = room.killed()
            assert after.values() == room.values()
            assert after.engine.report.notes == []
            room.send(BIG)
            room.checkpoint()

    def test_swapped_journal_files_are_refused(self):
        room = rolled()
        one, other, _ = (journal_path(lsn) for lsn in room.journals())
        inner = room.inner.crash_clone(0)
        inner.rename(one, "journal/x")
        inner.rename(other, one)
        inner.rename("journal/x", other)
        assert "another file under this name" in str(refusal(inner))

    def test_damage_in_a_file_that_nothing_needs_does_not_stop_a_start(self):
        room = rolled()
        dead = journal_path(room.journals()[0])
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        assert inner.exists(dead), "one checkpoint alone removes nothing"
        inner.open(dead).truncate(0)
        assert Room(inner).values() == room.values()

    def test_swapped_segments_are_refused_though_both_are_sound(self):
        room = one_file()
        room.send(b"0 of the other", number=2)
        room.send(b"0", number=1)
        room.checkpoint()
        logs = [path for path in contents(room.inner) if path.endswith(".log")]
        inner = room.inner.crash_clone(0)
        sizes = {inner.open(path).size() for path in logs}
        for path in logs:  # as long as each other, so that only what is in them can tell
            inner.open(path).truncate(max(sizes))
        inner.rename(logs[0], "x")
        inner.rename(logs[1], logs[0])
        inner.rename("x", logs[1])
        error = refusal(inner, CorruptSegment)
        assert (error.path, error.position, error.first_offset) == (logs[0], 0, 0)
        assert "a message of another segment" in str(error)

    def test_a_segment_that_is_shorter_than_was_forced_is_refused(self):
        room = one_file()
        room.checkpoint()
        for change in ("truncate", "unlink"):
            inner = room.inner.crash_clone(0)
            [path] = [path for path in contents(inner) if path.endswith("00000.log") and "t-0.1" in path]
            inner.open(path).truncate(10) if change == "truncate" else inner.unlink(path)
            refusal(inner, CorruptSegment)


class TestCheckpoints:
    @pytest.mark.parametrize("how", ["truncated", "a byte turned", "emptied", "begins otherwise"])
    def test_a_damaged_newest_checkpoint_costs_only_time(self, how):
        room = one_file()
        room.checkpoint()
        room.send(b"3")
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        path = checkpoint_path(room.checkpoints()[-1])
        size = inner.open(path).size()
        if how in ("truncated", "emptied"):
            inner.open(path).truncate(size - 3 if how == "truncated" else 0)
        else:
            damage(inner, path, size // 2 if how == "a byte turned" else 0)
        after = Room(inner)
        assert after.values() == [b"0", b"1", b"2", b"3"]
        assert "is damaged" in after.engine.report.notes[0]

    def test_files_that_only_the_older_checkpoint_needs_outlive_the_newer_one(self):
        room = Room()
        room.topic(segment_bytes=64 * KIB, retention_bytes=0)
        room.begin((1, b"a")).prepare("p").sync()
        for _ in range(4):
            room.send(BIG)
            room.checkpoint()
        assert room.engine.retain(room.engine.now()) == 1
        decide(room, "p", commit=True)
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        damage(inner, checkpoint_path(room.checkpoints()[-1]), 20)
        after = Room(inner)
        assert after.values() == room.values()
        assert after.values()[-1] == b"a"

    def test_without_a_sound_checkpoint_the_start_is_refused(self):
        room = one_file()
        room.checkpoint()
        inner = room.inner.crash_clone(0)
        damage(inner, checkpoint_path(room.checkpoints()[0]), 20)
        assert "none of the 1 checkpoints can be read" in str(refusal(inner))

    def test_an_unfinished_checkpoint_is_removed_and_not_believed(self):
        room = one_file()
        inner = room.inner.crash_clone(0)
        temporary = checkpoint_path(1 << 40) + ".tmp"
        inner.open(temporary, create=True).write_some(0, [b"half"])
        assert Room(inner).values() == [b"0", b"1", b"2"]
        assert not inner.exists(temporary)

    def test_a_damaged_staged_file_stops_only_the_commit_of_its_transaction(self):
        room = one_file()
        room.begin((1, b"a" + BIG)).prepare("p").sync()
        room.begin((1, b"b")).prepare("q").sync()
        for _ in range(3):
            room.checkpoint()
            room.send(BIG)
        inner = room.inner.crash_clone(0)
        [path, *_] = [path for path in contents(inner) if path.startswith("staged/")]
        damage(inner, path, 500)
        after = Room(inner)
        assert after.prepared() == {xid_of("p"), xid_of("q")}
        decide(after, "q", commit=True)
        decide(after, "p", commit=False)
        assert after.values()[-1] == b"b"

    def test_a_missing_staged_file_is_told_at_the_start_by_name(self):
        room = one_file()
        room.begin((1, b"a")).prepare("p").sync()
        room.begin((1, b"b")).prepare("q").sync()
        for _ in range(3):
            room.checkpoint()
            room.send(BIG)
        inner = room.inner.crash_clone(0)
        assert not any("staged/" in note for note in Room(inner.crash_clone(0)).engine.report.notes)
        gone = [path for path in contents(inner) if path.startswith("staged/")]
        inner.unlink(gone[0])
        [note] = [note for note in Room(inner).engine.report.notes if "staged/" in note]
        assert note.startswith(f"missing: {gone[0]} (transaction ")
        assert gone[1] not in note
        assert "a commit is refused until the file is restored from a copy, a rollback works" in note

    def test_swapped_staged_files_stop_only_the_commits_of_their_transactions(self):
        room = one_file()
        room.begin((1, b"a"), (2, b"b")).prepare("p").sync()
        room.begin((1, b"c"), (2, b"d")).prepare("q").sync()
        for _ in range(3):
            room.checkpoint()
            room.send(BIG)
        inner = room.inner.crash_clone(0)
        one, other = [path for path in contents(inner) if path.startswith("staged/")]
        inner.rename(one, "x")
        inner.rename(other, one)
        inner.rename("x", other)
        after = Room(inner)
        for name in ("p", "q"):
            with pytest.raises(CorruptJournal, match="are not the 1 message staged there"):
                decide(after, name, commit=True)
            decide(after, name, commit=False)
        assert after.values(2) == []


class TestWhatGoesOn:
    def test_lsns_go_on_at_the_next_stride_and_start_numbers_at_the_next_number(self):
        room = one_file()
        first = room.engine.start_number, room.journals()[-1]
        after = room.stopped()
        assert after.engine.start_number == first[0] + 1
        assert after.journals()[-1] == first[1] + START_STRIDE

    def test_journal_time_goes_on_whatever_both_clocks_say(self):
        room = one_file()
        room.clock.advance(5_000_000)
        room.send(b"3")
        at = room.engine.now()
        after = room.stopped()
        assert at <= after.engine.now() < at + 1_000_000

    def test_nothing_waits_for_a_resolver_before_the_start(self):
        room = one_file()
        for number in range(5):
            room.begin((1, b"%d" % number)).prepare(f"p{number}").sync()
        after = room.crashed(0)
        assert after.send(b"at once") == 3
        assert len(after.prepared()) == 5

    def test_outcomes_and_their_marks_are_answered_as_before(self):
        room = one_file()
        done = room.begin((1, b"a"), session=1).commit().sync()
        gone = room.begin((1, b"b"), session=1).commit().sync()
        kept = room.begin((1, b"c"), session=2).prepare("kept").sync()
        room.engine.accept(TransactionsForgotten([tuple(gone.number)], done.number.session, 0))
        room.engine.sync()
        for checkpoints in range(3):
            after = room.crashed(checkpoints)
            outcome = after.engine.transactions.outcome
            assert outcome(TransactionNumber(gone.number.session, 9)).state is State.ROLLED_BACK
            for number in (gone.number, TransactionNumber(done.number.session - 1, 1)):
                with pytest.raises(OutcomeForgotten):
                    outcome(number)
            assert kept.number in after.engine.transactions.live
            room.send(b"x")
            room.checkpoint()

    def test_the_report_says_what_was_found(self):
        room = one_file()
        room.begin((1, b"a")).prepare("p").sync()
        room.begin((1, b"b")).sync()
        report = room.crashed(0).engine.report
        assert (report.in_doubt, report.rolled_back, report.partitions) == (1, 1, 2)
        assert report.records == room.engine.last_lsn - START_STRIDE + 1

    def test_deleted_topics_take_no_memory_from_the_replay_of_what_came_after_them(self):
        room = Room()
        for number in range(1, 5):
            room.topic(f"t{number}", 1)
            for _ in range(6):
                room.send(BIG, number=number)
            room.flush()
            room.engine.accept(TopicDeleted(f"t{number}", room.engine.now()))
            room.engine.sync()
        room.topic("last", 1)
        room.begin(*[(5, b"v" * (150 * KIB))] * 4).commit().sync()
        assert len(room.crashed(0).values(5)) == 4

    def test_an_empty_directory_becomes_a_journal(self):
        inner = MemoryFilesystem()
        assert Room(inner).journals() == [START_STRIDE]


def test_every_row_of_the_document_names_tests_that_exist():
    root = Path(__file__).parent
    windows, _, rest = (root.parent / "docs" / "recovery.md").read_text().partition("\n## The simulation\n")
    rows = [
        line
        for line in [*windows.splitlines(), *rest.partition("\n## ")[2].splitlines()]
        if line.startswith("| ") and not line.startswith(("| moment", "| what is", "| what fails", "| file"))
    ]
    assert len(rows) > 50
    for row in rows:
        named = re.findall(r"`(test_\w+)::(test_\w+)`", row.rsplit("|", 2)[-2])
        assert named, row
        for module, test in named:
            assert f"def {test}(" in (root / f"{module}.py").read_text(), f"{module}::{test}"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_a_start_and_after_a_refusal(enabled):
    sound, torn = one_file(mark=True), one_file(mark=True)
    damage(torn.inner, journal_path(START_STRIDE), position_of_send(0) + GROUP_HEADER_BYTES)
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        Room(sound.inner.kill_clone())
        assert gc.isenabled() is enabled
        with pytest.raises(CorruptJournal):
            Room(torn.inner.kill_clone())
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
