"""Test what a start accepts as forced, and how it goes on. docs/recovery.md has the table."""

from __future__ import annotations

import gc
import re

import pytest

from journal.constants import BLOCK, KIB, START_STRIDE
from journal.errors import CorruptJournal, OutcomeForgotten
from journal.records import record
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    FileHeader,
    body_checksum,
    pack_group_header,
)
from journal.records.record import Mark, TopicDeleted, TransactionsForgotten
from journal.testing import Fault, MemoryFilesystem, Operation
from journal.transaction_states import State, TransactionNumber
from tests.recovery.recovery_scene import BIG, one_file, position_of_send, refusal, rolled
from tests.support.engine_room import Room, contents, damage, journal_path
from tests.support.journal_bytes import scan_of
from tests.support.repository import DOCS, ROOT


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
        data = bytes(FIRST_GROUP) + header + written[0] + left[1]
        scan = scan_of(data, FileHeader(new, 1, salt, 0, new))
        assert ([group.sound for group in scan.groups], scan.end.next_lsn) == ([1], new + 1)


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
    root = ROOT / "tests"
    windows, _, rest = (DOCS / "recovery.md").read_text().partition("\n## The simulation\n")
    rows = [
        line
        for line in [*windows.splitlines(), *rest.partition("\n## ")[2].splitlines()]
        if line.startswith("| ") and not line.startswith(("| moment", "| what is", "| what fails", "| file"))
    ]
    assert len(rows) > 50
    for row in rows:
        named = re.findall(r"`((?:\w+/)*test_\w+)::(test_\w+)`", row.rsplit("|", 2)[-2])
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
