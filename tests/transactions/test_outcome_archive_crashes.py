"""Test the outcome archive over crashes and starts, and read from files.

docs/recovery.md lists the crash windows. The expectation is a list that the tests themselves keep.
"""

from __future__ import annotations

import pytest

from journal.check import (
    Archived,
    Finding,
    Level,
    archive_from,
    archive_state,
    journaled_archive,
    verify,
    walk_archive,
    walk_journal,
)
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import Messages
from journal.testing import MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction_states import Cause, State
from tests.support.engine_room import Room, damage, decide, journal_path
from tests.transactions.archive_scene import (
    ARCHIVE,
    ENDS,
    FIRST,
    ON,
    SECOND,
    bare,
    ended,
    entries,
    room_with_topic,
)


class TestCrashWindows:
    def scene(self, room: Room, decided: list) -> None:
        def note(begun, state):
            decided.append((begun.number, state))

        begun = room.begin((FIRST, b"a"), (SECOND, b"b")).commit().sync()
        note(begun, State.COMMITTED)
        begun = room.begin((FIRST, b"c")).prepare("x").sync()
        first = room.begin((SECOND, b"d")).commit()
        second = room.begin((SECOND, b"e")).rollback().sync()
        note(first, State.COMMITTED)
        note(second, State.ROLLED_BACK)
        room.checkpoint()
        decide(room, "x", commit=True)
        note(begun, State.COMMITTED)
        room.flush()
        begun = room.begin((FIRST, b"f")).commit().sync()
        note(begun, State.COMMITTED)
        room.checkpoint()

    @pytest.mark.slow
    def test_at_every_operation_each_outcome_is_there_once_and_surely_if_it_was_answered(self):
        lengths = set()
        for nth in range(1, 300):
            room = room_with_topic()
            decided: list = []
            room.plan.on_operation = cut_power_at(nth)
            try:
                self.scene(room, decided)
            except PowerCut:
                cut = True
            else:
                cut = False
            room.plan.on_operation = None
            for seed, survive in ENDS:
                after = room.crashed(seed, survive)
                self.judge(after, decided)
                lengths.add(len(entries(after)) - len(decided))
                twice = after.crashed(seed, 0.0)
                assert bare(twice) == bare(after)
            self.judge(room.killed(), decided)
            if not cut:
                break
        assert nth > 20
        assert lengths >= {0, 1}, "no outcome was forced and not answered"

    def judge(self, after: Room, decided: list) -> None:
        found = [(number, state) for number, state, cause in ended(after) if cause is not Cause.RESTART]
        assert found[: len(decided)] == decided
        assert len({each.number for each in entries(after)}) == len(entries(after))
        committed = [each for each in entries(after) if each.state is State.COMMITTED]
        for number in (FIRST, SECOND):
            spans = [(p.base_offset, p.count) for each in committed for p in each.parts if p.number == number]
            end = 0
            for base, count in spans:
                assert base == end
                end += count
            assert end == len(after.values(number)), "messages without an outcome, or one without messages"
        assert not after.engine.transactions.archive.waiting

    def test_a_group_torn_between_an_outcome_and_its_entry_loses_neither(self):
        room = room_with_topic()
        begun = room.begin((FIRST, b"a")).sync().commit()
        group = room.engine.take()
        room.engine.write(group)
        assert group.count == 2, "the commit, and its entry"
        path = journal_path(room.journals()[-1])
        torn = room.crashed(0, survive=1.0)
        assert ended(torn) == [(begun.number, State.COMMITTED, Cause.CLIENT)]
        position = self.entry_position(room)
        clone = room.inner.kill_clone()
        damage(clone, path, position)
        after = Room(clone, room.settings)
        assert after.values(FIRST) == [b"a"]
        assert ended(after) == [(begun.number, State.COMMITTED, Cause.CLIENT)]
        assert ended(after.crashed()) == ended(after)

    def entry_position(self, room: Room) -> int:
        [entry] = [
            each
            for each in walk_journal(room.inner)
            if not isinstance(each, Finding)
            and isinstance(each.record, Messages)
            and each.record.partition == ARCHIVE
        ]
        return entry.position + 20

    def test_a_checkpoint_between_an_outcome_and_its_entry_keeps_what_waits(self):
        room = room_with_topic()
        room.checkpoint()
        begun = room.begin((FIRST, b"a")).sync().commit()
        housekeeping = room.engine.housekeeping
        housekeeping.request_checkpoint()
        jobs = room.engine.jobs(room.engine.now())  # the state is taken here, before the group
        assert room.engine.transactions.archive.waiting
        for job in jobs:
            job.run()
            room.engine.finish(job)
        room.engine.sync()
        housekeeping.run_inline()
        assert len(room.checkpoints()) == 2
        for after in (room.crashed(), room.crashed().crashed(), room.stopped()):
            assert ended(after) == [(begun.number, State.COMMITTED, Cause.CLIENT)]

    @pytest.mark.slow
    def test_the_first_start_with_an_archive_may_be_cut_anywhere(self):
        for nth in range(1, 200):
            inner = MemoryFilesystem()
            try:
                Room(inner, ON, cut_at=nth)
            except PowerCut:
                for seed, survive in ENDS:
                    after = Room(inner.crash_clone(seed, survive), ON)
                    assert list(after.engine.catalog.topics) == [OUTCOMES_TOPIC]
                    assert after.engine.transactions.archive.on
                    after.topic()
                    begun = after.begin((FIRST, b"a")).commit().sync()
                    assert [number for number, _, _ in ended(after)] == [begun.number]
            else:
                break
        assert nth > 10

    def test_many_rolled_back_by_a_restart_have_the_same_places_whoever_replays_it(self):
        room = room_with_topic()
        sessions = [9, 3, 7, 5]
        for session in sessions:
            room.begin((FIRST, b"a"), session=session)
        room.engine.sync()
        after = room.crashed()
        numbers = [number for number, _, _ in ended(after)]
        assert len(numbers) == 4
        assert numbers == sorted(numbers)
        assert bare(after.crashed()) == bare(after)


class TestReplay:
    @pytest.mark.parametrize("adds", [1, 3])
    @pytest.mark.parametrize("checkpoint", [False, True])
    def test_the_archive_is_the_same_byte_for_byte_after_any_replay(self, adds, checkpoint):
        room = room_with_topic()
        for number in range(60):
            begun = room.begin(*[(FIRST + n % 2, b"%d-%d" % (number, n)) for n in range(adds)])
            if number % 7 == 3:
                begun.prepare(f"x{number}")
            begun.rollback() if number % 5 == 4 else begun.commit()
            if number % 3 == 0:
                room.engine.sync()
            if checkpoint and number == 30:
                room.checkpoint()
        room.engine.sync()
        live = bare(room)
        for after in (room.crashed(), room.crashed().crashed(), room.killed(), room.stopped()):
            assert bare(after) == live
            assert after.engine.transactions.archive.next_offset == 60

    def test_a_start_archives_nothing_that_the_log_has_already(self):
        room = room_with_topic()
        for number in range(5):
            room.begin((FIRST, b"%d" % number)).commit().sync()
        after = room.crashed()
        assert not after.engine.transactions.archive.waiting
        last = room.engine.last_lsn
        new = [each.record for each in walk_journal(after.inner, last + 1) if not isinstance(each, Finding)]
        assert [type(each).__name__ for each in new] == ["Started"]

    def test_what_the_segments_hold_beyond_the_checkpoint_is_not_made_twice(self):
        room = room_with_topic()
        room.checkpoint()
        for number in range(5):
            room.begin((FIRST, b"%d" % number)).commit().sync()
        room.flush()
        assert room.store(ARCHIVE).flushed_offset == 5
        after = room.killed()
        assert bare(after) == bare(room)
        assert len(entries(after)) == 5


class TestReadingItFromFiles:
    def written(self) -> Room:
        room = room_with_topic()
        for number in range(300):
            room.clock.advance(1000)
            room.begin((FIRST, b"v" * 200)).commit().sync()
            if number == 199:
                room.checkpoint()
        return room

    def test_segments_have_it_up_to_the_checkpoint_and_the_journal_the_rest(self):
        room = self.written()
        state = archive_state(room.inner)
        assert state is not None
        assert state.flushed_offset == 200
        inside = list(walk_archive(room.inner, state))
        beyond = list(journaled_archive(room.inner, state))
        assert [each.offset for each in (*inside, *beyond)] == list(range(300))
        assert [each.outcome for each in (*inside, *beyond)] == entries(room)
        assert all(isinstance(each, Archived) for each in (*inside, *beyond))
        assert list(journaled_archive(room.inner, None))[:1] != []

    def test_some_of_it_is_read_by_offset_and_found_by_time(self):
        room = self.written()
        state = archive_state(room.inner)
        assert [each.offset for each in walk_archive(room.inner, state, 50, 60)] == list(range(50, 60))
        every = list(walk_archive(room.inner, state))
        for wanted in (0, 1, 77, 199):
            found = archive_from(room.inner, state, every[wanted].outcome.at)
            assert found <= wanted
        assert archive_from(room.inner, state, every[199].outcome.at) > 0, "the index is of use"
        assert archive_from(room.inner, state, every[-1].outcome.at + 10**9) == state.flushed_offset

    def test_a_damaged_entry_is_told_with_its_place_and_the_others_are_read(self):
        room = self.written()
        state = archive_state(room.inner)
        tenth = list(walk_archive(room.inner, state))[10]
        damage(room.inner, tenth.path, tenth.position + 50)
        found = list(walk_archive(room.inner, state))
        [finding] = [each for each in found if isinstance(each, Finding)]
        assert (finding.path, finding.position) == (tenth.path, tenth.position)
        assert finding.affects.first_offset == 10
        assert len(found) == 200

    def test_a_verification_finds_nothing_wrong_with_it(self):
        room = self.written()
        room.engine.close()
        assert [f for f in verify(room.inner, Level.DEEP) if not f.harmless] == []
