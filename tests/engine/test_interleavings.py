"""Test the steps of writer, flusher and reactor in orders that threads can cause, each stepped by hand."""

import errno

import pytest

from journal.embedded import Log
from journal.errors import InvalidSetting, JournalPoisoned, OutcomeForgotten, TransactionRolledBack
from journal.records.group_entries import PartitionOffset
from journal.records.record import Mark, OffsetsCommitted, TransactionsForgotten
from journal.recovery.start import recover
from journal.testing import Fault, FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem, Operation
from journal.transaction_states import Cause, State, TransactionNumber
from tests.engine.interleaving_scene import BIG
from tests.support.engine_room import NEVER, SMALL, Room, contents


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
