"""Test the cycle with a thread: writes do not wait for others, waiting ones share a force, a failure ends
everything.
"""

from types import SimpleNamespace

import pytest

from tests.support.manual_worker import ManualWorker
from txbroker.broker.slow_forces import SlowForces
from txbroker.server.threads.journal_writer import Writer


class Turns:
    """A reactor's clock, turn by turn: what a turn schedules belongs to the next one."""

    def __init__(self):
        self.scheduled = []

    def callLater(self, delay, function):
        assert delay == 0, "nothing here waits for time to pass"
        self.scheduled.append(function)

    def turn(self):
        scheduled, self.scheduled = self.scheduled, []
        for function in scheduled:
            function()


class FakeEngine:
    """The engine's side of the cycle: groups are lists of names."""

    def __init__(self):
        self.busy = False
        self.failed = ""
        self.slices = 0
        self.broken = None
        self.log = []
        self._filling = []
        self._in_flight = None

    def accept(self, name):
        idle = not self._filling and self._in_flight is None
        self._filling.append(name)
        if idle:
            self.on_pending()

    def take(self):
        assert self._in_flight is None
        if not self._filling:
            return None
        self._in_flight, self._filling = self._filling, []
        return self._in_flight

    def write(self, group):
        if self.broken:
            raise self.broken
        self.log.append(("forced", *group))
        return 0

    def publish(self, group):
        assert group is self._in_flight
        self._in_flight = None
        self.log.append(("published", *group))

    def continue_apply(self):
        self.slices -= 1
        self.log.append(("slice",))
        self.busy = self.slices > 0

    def fail(self, reason):
        self.failed = reason


@pytest.fixture
def made():
    clock, worker, engine, failures, forces = Turns(), ManualWorker(), FakeEngine(), [], []
    writer = Writer(
        engine,
        worker,
        clock,
        lambda: engine.log.append(("hold",)),
        lambda: engine.log.append(("flush",)),
        lambda doing, error: failures.append((doing, error)),
        SlowForces(engine),
        forces.append,
    )
    return SimpleNamespace(
        clock=clock, worker=worker, engine=engine, failures=failures, forces=forces, writer=writer
    )


def test_what_was_accepted_is_taken_when_the_turns_of_the_sessions_are_over(made):
    made.writer.take_now()
    made.engine.accept("a")
    assert len(made.worker.work) == 0
    made.writer.take_now()
    assert len(made.worker.work) == 1
    made.engine.accept("b")
    made.writer.take_now()
    made.clock.turn()
    assert len(made.worker.work) == 1
    made.worker.step()
    assert made.engine.log == [("forced", "a"), ("hold",), ("published", "a"), ("flush",)]


def test_all_that_one_turn_reads_shares_a_force(made):
    made.engine.accept("a")
    made.engine.accept("b")
    assert not made.worker.work, "the rest of the turn may still bring company"
    made.clock.turn()
    made.worker.step()
    assert made.engine.log == [("forced", "a", "b"), ("hold",), ("published", "a", "b"), ("flush",)]


def test_what_cannot_be_handed_over_ends_the_process(made):
    """It is under way already, and nobody would ever hear of it."""

    def full(group):
        raise MemoryError

    made.writer._forcing, made.engine.place = object(), full
    made.engine.accept("a")
    made.clock.turn()
    assert [(doing, type(error)) for doing, error in made.failures] == [("writing the journal", MemoryError)]
    assert made.engine.failed


def test_a_lone_request_does_not_wait_for_company(made):
    made.engine.accept("a")
    made.clock.turn()
    assert len(made.worker.work) == 1


def test_the_next_group_gathers_while_one_is_forced_and_goes_at_once_after_it(made):
    made.engine.accept("a")
    made.clock.turn()
    made.engine.accept("b")
    made.clock.turn()
    made.engine.accept("c")
    assert len(made.worker.work) == 1, "one group at a time"
    made.worker.step()
    assert len(made.worker.work) == 1, "without another turn"
    made.worker.step()
    assert ("published", "b", "c") in made.engine.log
    assert made.clock.scheduled == []


def test_after_idleness_the_next_request_starts_the_cycle_again(made):
    for name in ("a", "b"):
        made.engine.accept(name)
        made.clock.turn()
        made.worker.step()
    assert [entry[1] for entry in made.engine.log if entry[0] == "published"] == ["a", "b"]


def test_drained_means_that_all_that_was_accepted_is_answered(made):
    made.engine.accept("a")
    made.clock.turn()
    drained = made.writer.drained()
    made.engine.accept("b")
    made.worker.step()
    assert not drained.called
    made.worker.step()
    assert drained.called


def test_drained_with_nothing_to_do_is_at_once(made):
    drained = made.writer.drained()
    made.clock.turn()
    assert drained.called


def test_a_failed_force_ends_everything_and_publishes_nothing(made):
    made.engine.broken = OSError(5, "Input/output error")
    made.engine.accept("a")
    made.clock.turn()
    drained = made.writer.drained()
    made.worker.step()
    [(doing, error)] = made.failures
    assert doing == "writing the journal"
    assert error is made.engine.broken
    assert "Input/output error" in made.engine.failed
    made.engine.accept("b")
    made.clock.turn()
    assert not made.worker.work, "never a second try"
    assert not [entry for entry in made.engine.log if entry[0] == "published"]
    assert not drained.called


def test_a_fault_while_publishing_ends_everything_too(made):
    made.engine.publish = lambda group: 1 // 0
    made.engine.accept("a")
    made.clock.turn()
    made.worker.step()
    assert made.failures[0][0] == "publishing what was forced"
    assert not made.worker.work


def test_a_large_commit_is_applied_one_slice_a_turn_while_groups_go_on(made):
    engine = made.engine
    engine.accept("commit")
    engine.busy, engine.slices = True, 3
    made.clock.turn()
    assert engine.log == []
    made.clock.turn()
    made.clock.turn()
    assert engine.log == [("hold",), ("slice",), ("flush",)] * 2
    drained = made.writer.drained()
    made.worker.step()
    assert not drained.called, "the commit is not applied yet"
    made.clock.turn()
    assert not engine.busy
    made.clock.turn()
    assert drained.called


def test_a_large_commit_that_was_forced_before_it_is_applied_is_still_carried_through(made):
    engine = made.engine
    engine.accept("commit")
    engine.busy, engine.slices = True, 2
    made.clock.turn()
    made.worker.step()
    for _ in range(4):
        made.clock.turn()
    assert engine.log.count(("slice",)) == 2
    engine.accept("next")
    made.clock.turn()
    made.worker.step()
    assert ("published", "next") in engine.log
