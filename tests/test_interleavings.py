"""The steps of the writer, the flusher and the reactor in orders that threads bring about, each stepped by hand."""

import errno

import pytest

from journal.constants import KIB, MIB
from journal.embedded import Log
from journal.errors import (
    InvalidSetting,
    JournalPoisoned,
    MemoryExhausted,
    OutcomeForgotten,
    TransactionRolledBack,
)
from journal.jobs import CollectGarbage, FillSpare, FlushStore, StageFrames, WriteCheckpoint
from journal.journal_settings import JournalSettings
from journal.record import (
    LogStartMoved,
    Mark,
    OffsetsCommitted,
    PartitionOffset,
    TopicDeleted,
    TransactionsForgotten,
)
from journal.recovery import recover
from journal.testing import Fault, FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem, Operation
from journal.transaction import Cause, State, TransactionNumber
from tests.engine_room import NEVER, SMALL, Room, contents, decide

BIG = b"v" * (200 * KIB)


def spilled(room, session=7, adds=5):
    """A transaction of a megabyte: more than may be held, so that some of it is read back from the journal."""
    return room.begin(*[(1 + n % 2, b"%d" % n + BIG) for n in range(adds)], session=session)


def jobs(room):
    return room.engine.jobs(room.engine.now())


def run(room, job):
    job.run()
    room.engine.finish(job)


class TestLargeCommits:
    def test_a_message_accepted_after_a_large_commit_is_not_shown_by_the_force_of_the_commit(self):
        room = Room()
        one, _ = room.topic()
        engine = room.engine
        engine.transactions.small_bytes = 0
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
        engine.transactions.small_bytes = 0
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
        engine.transactions.small_bytes = 0
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
        engine.transactions.small_bytes = engine.transactions.slice_bytes = 1
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
        assert len(room.engine.transactions.preview(begun.number, 10 * MIB)) == 2
        room.engine.sync()
        assert len(room.engine.transactions.preview(begun.number, 10 * MIB)) == 5

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
        assert engine.transactions.applying.short_of_memory
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


class TestForces:
    def test_a_group_costs_one_force_however_many_partitions_it_is_for(self):
        """Per-partition forces are what made 100 queues 13 times as slow as one elsewhere."""
        for partitions in (1, 100):
            room = Room()
            room.topic(partitions=partitions)
            before = room.plan.counts[Operation.FORCE]
            for number in range(1, partitions + 1):
                room.accept(b"a", b"b", number=number)
            room.engine.sync()
            room.engine.housekeeping.run_inline()
            assert sum(len(room.values(number)) for number in range(1, partitions + 1)) == 2 * partitions
            filled = 2  # the first call of housekeeping makes a spare and the ballast
            assert room.plan.counts[Operation.FORCE] - before == 1 + filled
            assert not [path for path in contents(room.inner) if path.endswith(".log")]


class TestTimeouts:
    """A time-out and a client that prepare or commit in the same moment: one of them is first, for everybody."""

    AGE = 60_000_000

    def begun(self):
        room = Room()
        room.topic()
        begun = room.begin((1, b"a"), (2, b"b")).sync()
        room.clock.advance(self.AGE)
        return room, begun

    def expire(self, room):
        return room.engine.transactions.expire(room.engine.now(), self.AGE)

    def outcome(self, room, begun):
        """What the next start says, however much of the unforced survives."""
        room.engine.sync()
        [state] = {
            after.engine.transactions.live[begun.number].state
            if begun.number in after.engine.transactions.live
            else after.engine.transactions.outcome(begun.number).state
            for after in (room.crashed(0, survive=0), room.crashed(1), room.killed())
        }
        return state

    @pytest.mark.parametrize("forced", [False, True])
    def test_a_prepare_that_was_accepted_first_wins_before_its_force_too(self, forced):
        room, begun = self.begun()
        begun.prepare("p")
        if forced:
            room.engine.sync()
        assert self.expire(room) == 0
        assert self.outcome(room, begun) is State.PREPARED

    @pytest.mark.parametrize("forced", [False, True])
    def test_a_commit_that_was_accepted_first_wins_before_its_force_too(self, forced):
        room, begun = self.begun()
        begun.commit()
        if forced:
            room.engine.sync()
        assert self.expire(room) == 0
        assert self.outcome(room, begun) is State.COMMITTED
        assert (room.values(1), room.values(2)) == ([b"a"], [b"b"])

    @pytest.mark.parametrize("forced", [False, True])
    @pytest.mark.parametrize("late", [lambda begun: begun.prepare("p"), lambda begun: begun.commit()])
    def test_a_time_out_that_was_accepted_first_refuses_what_comes_later(self, late, forced):
        room, begun = self.begun()
        assert self.expire(room) == 1
        if forced:
            room.engine.sync()
        with pytest.raises(TransactionRolledBack, match="active for more than"):
            late(begun)
        assert self.outcome(room, begun) is State.ROLLED_BACK
        assert room.values(1) == room.values(2) == []


class TestFailures:
    def test_nothing_is_accepted_or_answered_after_a_failed_force(self):
        log = Log(FaultFilesystem(MemoryFilesystem(), plan := FaultPlan()), ManualClock(), SMALL)
        log.create_topic("t")
        plan.faults.append(Fault(Operation.FORCE, path="journal/*"))
        with pytest.raises(JournalPoisoned):
            log.append("t", b"lost")
        for _ in range(2):
            with pytest.raises(JournalPoisoned):
                log.append("t", b"not acknowledged either")
        with pytest.raises(JournalPoisoned):
            log.engine.accept(Mark(log.engine.now()))
        with pytest.raises(JournalPoisoned):
            log.engine.sync()
        log.close()

    def test_nothing_is_accepted_after_a_failed_flush(self):
        room = Room()
        room.topic()
        room.send(b"a")
        room.plan.faults.append(Fault(Operation.FORCE, path="partitions/*"))
        with pytest.raises(OSError, match="as planned"):
            room.flush()
        with pytest.raises(JournalPoisoned):
            room.send(b"b")
        assert room.killed().values() == [b"a"]

    def test_a_spare_that_finds_no_room_is_not_tried_again_at_once(self):
        room = Room()
        room.topic()
        while room.engine.journal.spare_exists():
            room.send(BIG)
        room.plan.faults.append(
            Fault(Operation.WRITE, path="*spare.filling", error=errno.ENOSPC, times=NEVER)
        )
        room.engine.housekeeping.run_inline()
        assert room.engine.full
        assert room.plan.faults[0].seen == 1
        assert not room.inner.exists("journal/spare.filling")
        room.plan.faults.clear()
        room.clock.advance(20_000_000)
        room.engine.housekeeping.run_inline()
        assert not room.engine.full
        assert room.engine.journal.spare_exists()

    def test_a_full_pool_is_flushed_by_the_embedded_log_itself(self):
        log = Log(MemoryFilesystem(), ManualClock(), SMALL)
        log.create_topic("t")
        for _ in range(12):
            log.append("t", BIG)
        assert len(list(log.read("t"))) == 12


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


class TestWhatOthersKeep:
    def test_a_directory_with_state_that_is_unknown_here_is_not_opened(self):
        room = Room()
        room.topic()
        room.engine.accept(OffsetsCommitted("g", [PartitionOffset(1, 0)], 0))
        room.engine.sync()
        with pytest.raises(InvalidSetting, match="OffsetsCommitted"):
            room.killed()

    def test_a_checkpoint_with_state_that_is_unknown_here_is_not_opened(self):
        room = Room()
        room.engine.folds[1].name = "another"
        room.topic()
        room.checkpoint()
        with pytest.raises(InvalidSetting, match="another"):
            recover(room.inner.kill_clone(), ManualClock(), SMALL)

    def test_what_is_below_the_mark_of_sessions_stays_forgotten_when_one_of_them_ends_something_later(self):
        room = Room()
        room.topic()
        old = room.begin((1, b"old"), session=1)
        old.commit().sync()
        late = room.begin((1, b"late"), session=1)
        late.prepare("late").sync()
        newer = room.begin((1, b"x"), session=1).commit().sync()
        transactions = room.engine.transactions
        mark = newer.number.session + 1
        numbers = [tuple(old.number), tuple(newer.number)]
        room.engine.accept(TransactionsForgotten(numbers, mark, 0))
        transactions.commit(late.number, Cause.CLIENT, seen=1)
        assert transactions.outcome(late.number).state is State.COMMITTED
        for number in (old.number, newer.number, TransactionNumber(mark - 1, 99)):
            with pytest.raises(OutcomeForgotten):
                transactions.outcome(number)
        assert transactions.outcome(TransactionNumber(mark, 1)).state is State.ROLLED_BACK


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
