"""Test starts with files that are missing, damaged or of another directory. docs/recovery.md has the table."""

from __future__ import annotations

import pytest

from journal.constants import BLOCK, KIB
from journal.errors import CorruptJournal, CorruptSegment, DirectoryLocked
from journal.records.journal_headers import FIRST_GROUP, GROUP_HEADER_BYTES
from tests.recovery.recovery_scene import BIG, one_file, position_of_send, refusal, rolled
from tests.support.engine_room import Room, checkpoint_path, contents, damage, decide, journal_path, xid_of


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

    @pytest.mark.sampled(37)
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
        assert "it is the segment of partition number 2 from offset 0 on" in str(error)

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
        assert room.engine.housekeeping.retain(room.engine.now()) == 1
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
