"""Test checkpoints, and the clean-up after them, in orders that threads can cause, each stepped by hand."""

import pytest

from journal.constants import KIB, MIB
from journal.engine.jobs import CollectGarbage, FillSpare, FlushStore, WriteCheckpoint
from journal.engine.settings import JournalSettings
from journal.records.record import LogStartMoved, TopicDeleted
from journal.testing import ManualClock, Operation
from tests.engine.interleaving_scene import BIG, jobs, run
from tests.support.engine_room import Room


class TestCheckpoints:
    def test_the_age_of_a_checkpoint_counts_from_the_start_whatever_the_machines_clock_says(self):
        room = Room()
        room.topic()
        room.clock.advance(1_000_000_000)
        room.send(b"a")
        settings = JournalSettings(file_bytes=64 * KIB, low_water_bytes=0, checkpoint_interval=60_000_000)
        for uptime in (0, 1 << 45):
            clock = ManualClock(monotonic=uptime)
            after = Room(room.inner.kill_clone(), settings, clock=clock)
            clock.advance(59_000_000)
            after.engine.housekeeping.run_inline()
            assert after.checkpoints() == []
            clock.advance(1_000_000)
            after.engine.housekeeping.run_inline()
            assert len(after.checkpoints()) == 1

    def test_a_checkpoint_is_due_by_what_the_journal_takes_on_disk_however_small_its_records(self):
        room = Room(settings=JournalSettings(file_bytes=MIB, low_water_bytes=0, checkpoint_bytes=256 * KIB))
        room.topic()
        for _ in range(80):
            room.send(b"a")
            room.engine.housekeeping.run_inline()
        assert room.checkpoints()

    def test_a_checkpoint_waits_until_the_start_of_a_log_that_it_records_is_forced(self):
        room = Room()
        room.topic()
        room.send(b"a", b"b")
        room.engine.housekeeping.request_checkpoint()
        [flush, *_] = [job for job in jobs(room) if isinstance(job, FlushStore)]
        flush.run()
        room.accept(b"c", b"d")
        room.engine.accept(LogStartMoved(1, 4, room.engine.now()))
        room.engine.finish(flush)
        room.engine.housekeeping.run_inline()
        after = room.crashed(1, survive=0)
        assert after.store().start_offset <= after.store().end_offset
        assert after.values() == [b"a", b"b"]
        room.engine.sync()
        room.engine.housekeeping.run_inline()
        assert len(room.checkpoints()) == 1
        assert room.crashed(1, survive=0).store().start_offset == 4

    def test_a_recycled_file_is_offered_to_the_writer_only_when_its_old_name_is_gone_for_good(self):
        room = Room()
        room.topic()
        collecting = garbage(room)
        before, names = room.values(), set(room.inner.list_directory("journal"))
        collecting.run()
        dead = names - set(room.inner.list_directory("journal"))
        assert dead
        for seed in range(30):
            assert dead.isdisjoint(room.inner.crash_clone(seed).list_directory("journal"))
        room.engine.journal.fill_spare()
        clones = []

        def cut_before_the_rename(kind, path):
            if kind is Operation.RENAME and path == "journal/spare.rolling":
                clones.extend(room.inner.crash_clone(seed) for seed in range(30))

        room.plan.on_operation = cut_before_the_rename
        while not clones:
            room.send(BIG)
        for clone in clones:
            assert Room(clone).values()[: len(before)] == before

    @pytest.mark.slow
    def test_removals_of_journal_files_that_a_power_cut_undid_in_part_do_not_stop_a_start(self):
        room = Room()
        room.topic()
        collecting = garbage(room, rolls=8)
        kept = room.values()
        forced = room.inner.force_directory
        room.inner.force_directory = lambda path: forced(path) if path != "journal" else None
        collecting.run()
        gaps = 0
        for seed in range(60):
            clone = room.inner.crash_clone(seed)
            names = [name for name in clone.list_directory("journal") if name.endswith(".journal")]
            after = Room(clone)
            assert after.values() == kept
            gaps += len(names) > 2
            for _ in range(3):
                after.send(b"more")
                after.checkpoint()
            assert len(after.journals()) <= 3
        assert gaps

    def test_a_deleted_topic_whose_flush_was_under_way_leaves_no_file_behind(self):
        room = Room()
        store, _ = room.topic()
        room.send(b"a")
        room.flush()
        room.send(b"b")
        engine = room.engine
        delete(room, "t")
        engine.housekeeping.request_checkpoint()
        [write] = [job for job in jobs(room) if isinstance(job, WriteCheckpoint)]
        engine.housekeeping.want_flush()
        [flush] = [job for job in jobs(room) if isinstance(job, FlushStore)]
        run(room, write)
        room_for_one_more = engine.jobs(room.engine.now())
        run(room, flush)
        for job in room_for_one_more:
            run(room, job)
        assert store.unflushed_messages == 0
        for number in range(2):
            room.topic(f"u{number}")
            room.checkpoint()
        engine.housekeeping.want_flush()
        engine.housekeeping.run_inline()
        assert store not in engine.dirty
        assert not room.inner.exists(store.directory)

    def test_older_checkpoints_whose_removal_was_undone_go_in_the_end(self):
        room = Room()
        room.topic()
        for number in range(2):
            room.send(b"%d" % number)
            room.checkpoint()
        oldest = f"checkpoints/{room.checkpoints()[0]:032}.checkpoint"
        undone = room.inner.open(oldest).read(0, 1 << 20)
        room.send(b"2")
        room.checkpoint()
        assert not room.inner.exists(oldest)
        room.inner.open(oldest, create=True).write_some(0, [undone])
        after = room.stopped()
        for number in range(2):
            after.send(b"%d" % number)
            after.checkpoint()
        assert not room.inner.exists(oldest)
        assert len(after.checkpoints()) == 2


def delete(room, name):
    room.engine.accept(TopicDeleted(name, room.engine.now()))
    room.engine.sync()


def garbage(room, rolls=4):
    """A clean-up that is due, with several dead journal files and no spare."""
    for _ in range(rolls):
        room.send(BIG)
    room.checkpoint()
    room.send(b"x")
    engine = room.engine
    engine.housekeeping.request_checkpoint()
    while True:
        for job in jobs(room):
            if isinstance(job, CollectGarbage):
                assert len(job._journals) >= 2
                if room.inner.exists("journal/spare.next"):
                    room.inner.force_directory("journal")
                return job
            if not isinstance(job, FillSpare):
                run(room, job)
