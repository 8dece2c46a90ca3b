"""Test commits applied in slices, or read back from the journal, while the writer and the flusher go on."""

import pytest

from journal.constants import KIB, MIB
from journal.engine.jobs import FlushStore, StageFrames
from journal.engine.settings import JournalSettings
from journal.errors import MemoryExhausted
from journal.testing import Operation
from journal.transaction_states import Cause
from tests.engine.interleaving_scene import BIG, jobs, run
from tests.support.engine_room import Room, decide


def spilled(room, session=7, adds=5):
    """A transaction of a megabyte: more than may be held, so that some of it is read back from the journal."""
    return room.begin(*[(1 + n % 2, b"%d" % n + BIG) for n in range(adds)], session=session)


class TestLargeCommits:
    def test_a_message_accepted_after_a_large_commit_is_not_shown_by_the_force_of_the_commit(self):
        room = Room()
        one, _ = room.topic()
        engine = room.engine
        engine.transactions.table.application.small_bytes = 0
        room.begin((1, b"a"), (2, b"b")).commit()
        group = engine.take()
        engine.write(group)
        while engine.busy:
            engine.continue_apply()
        room.accept(b"later")
        engine.publish(group)
        assert one.high_watermark == 1
        assert room.values(1) == [b"a"]
        assert room.values(2) == [b"b"]
        engine.sync()
        assert room.values(1) == [b"a", b"later"]

    def test_a_message_in_the_same_group_as_a_large_commit_is_shown_with_it(self):
        room = Room()
        room.topic()
        engine = room.engine
        engine.transactions.table.application.small_bytes = 0
        room.begin((1, b"a"), (2, b"b")).commit()
        while engine.busy:
            engine.continue_apply()
        room.accept(b"later")
        engine.sync()
        assert (room.values(1), room.values(2)) == ([b"a", b"later"], [b"b"])

    def test_who_is_woken_by_a_message_in_the_group_of_a_large_commit_sees_all_of_the_commit(self):
        room = Room()
        stores = room.topic()
        engine = room.engine
        engine.transactions.table.application.small_bytes = 0
        room.begin((1, b"a"), (2, b"b")).commit()
        while engine.busy:
            engine.continue_apply()
        room.accept(b"later")
        seen = []
        engine.on_published = lambda _: seen.append([store.high_watermark for store in stores])
        engine.sync()
        assert seen == [[2, 1]]

    def test_a_checkpoint_waits_for_the_end_of_a_large_commit_that_began_while_it_staged_frames(self):
        room = Room()
        room.topic()
        engine = room.engine
        held = room.begin((1, b"held")).prepare("held").sync()
        room.checkpoint()
        room.send(b"more")
        engine.housekeeping.request_checkpoint()
        staging = [job for job in jobs(room) if isinstance(job, StageFrames)]
        assert staging, "the scene needs frames to be staged"
        engine.transactions.table.application.small_bytes = (
            engine.transactions.table.application.slice_bytes
        ) = 1
        room.begin((1, b"a"), (2, b"b"), (1, b"c")).commit()
        engine.continue_apply()
        assert engine.busy
        run(room, staging[0])
        assert jobs(room) == [] or engine.busy
        engine.sync()
        engine.housekeeping.run_inline()
        assert len(room.checkpoints()) == 2
        after = room.crashed(0, survive=0)
        assert (after.values(1), after.values(2)) == ([b"more", b"a", b"c"], [b"b"])
        decide(after, "held", commit=True)
        assert held.number in after.engine.transactions.outcomes.by_number

    def test_frames_that_spilled_are_not_read_back_before_they_are_in_the_journal(self):
        room = Room()
        room.topic()
        spilled(room).commit()
        assert room.engine.busy
        room.engine.continue_apply()
        assert not room.engine.failed
        room.engine.sync()
        assert [len(v) for v in room.values(2)] == [len(BIG) + 1] * 2

    def test_frames_that_spilled_are_not_previewed_before_they_are_in_the_journal(self):
        room = Room()
        room.topic()
        begun = spilled(room)
        assert (
            len(room.engine.transactions.table.preview(begun.number, 10 * MIB, room.engine.forced_lsn)) == 2
        )
        room.engine.sync()
        assert (
            len(room.engine.transactions.table.preview(begun.number, 10 * MIB, room.engine.forced_lsn)) == 5
        )

    def test_a_commit_larger_than_memory_goes_through_inline(self):
        room = Room()
        room.topic()
        spilled(room, adds=12).commit().sync()
        assert [len(room.values(n)) for n in (1, 2)] == [6, 6]
        assert [len(room.crashed(3).values(n)) for n in (1, 2)] == [6, 6]

    def test_slices_applied_before_the_force_can_be_flushed_after_it_to_make_room(self):
        room = Room()
        room.topic()
        engine = room.engine
        engine.on_flush_wanted = lambda: None
        begun = spilled(room, adds=12)
        for group in iter(engine.take, None):
            engine.write(group)
            engine.publish(group)
        begun.commit()
        for _ in range(20):
            engine.continue_apply()
        assert engine.large_commits.current.short_of_memory
        group = engine.take()
        engine.write(group)
        engine.publish(group)
        for _ in range(20):
            if engine.busy:
                engine.continue_apply()
                for job in jobs(room):
                    run(room, job)
        assert not engine.busy
        assert [len(room.values(n)) for n in (1, 2)] == [6, 6]

    def test_no_segment_is_touched_before_a_large_commit_is_forced(self):
        room = Room()
        room.topic()
        engine = room.engine
        engine.on_flush_wanted = lambda: None
        begun = spilled(room, adds=12).sync()
        begun.commit()
        for _ in range(20):
            engine.continue_apply()
        assert not [job for job in jobs(room) if isinstance(job, FlushStore)]

    def test_a_commit_that_no_longer_fits_into_memory_stops_the_start_with_a_reason(self):
        room = Room()
        room.topic()
        begun = room.begin((1, b"v" * (600 * KIB)), (2, b"w" * (1200 * KIB)))
        begun.prepare("p").sync()
        begun.room.engine.transactions.commit(begun.number, Cause.CLIENT)
        with pytest.raises(MemoryExhausted, match="pool_bytes"):
            room.engine.sync()
        with pytest.raises(MemoryExhausted, match="pool_bytes"):
            room.crashed(1)
        larger = Room(room.inner.crash_clone(1), JournalSettings(pool_bytes=8 * MIB, low_water_bytes=0))
        assert [len(larger.values(n)[0]) for n in (1, 2)] == [600 * KIB, 1200 * KIB]

    def test_reading_spilled_frames_back_reads_each_group_once(self):
        room = Room()
        room.topic()
        begun = room.begin(*[(1, b"v" * (24 * KIB))] * 40)
        begun.sync()
        assert len(begun.room.engine.transactions.live[begun.number].staged.held) < 25
        before = room.plan.counts[Operation.READ]
        begun.commit().sync()
        assert room.plan.counts[Operation.READ] - before <= 4
        assert len(room.values(1)) == 40
