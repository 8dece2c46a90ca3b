"""Test that housekeeping's jobs run on a thread, in order, and return; a failure ends the process."""

from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock

from journal.engine.jobs import ForceLogs, WriteCheckpoint
from journal.testing import Fault, Operation
from tests.support.engine_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.server.threads.flusher import Flusher


class FakeJob:
    def __init__(self, name, log, problem=None):
        self.name, self.log, self.problem = name, log, problem

    def run(self):
        if self.problem:
            raise self.problem
        self.log.append(f"ran {self.name}")


class FakeHousekeeping:
    def __init__(self):
        self.due = []
        self.log = []
        self.failed = ""

    def now(self):
        return 42

    def fail(self, reason):
        self.failed = reason

    def jobs(self, now):
        assert now == 42
        due, self.due = self.due, []
        return due

    def finish(self, job):
        if job.name == "impossible":
            raise AssertionError("files and state disagree")
        self.log.append(f"finished {job.name}")


@pytest.fixture
def made():
    clock, worker, housekeeping, failures = Clock(), ManualWorker(), FakeHousekeeping(), []
    flusher = Flusher(housekeeping, worker, clock, lambda doing, error: failures.append((doing, error)))

    def job(name, problem=None):
        return FakeJob(name, housekeeping.log, problem)

    return SimpleNamespace(
        clock=clock, worker=worker, housekeeping=housekeeping, failures=failures, flusher=flusher, job=job
    )


def test_what_is_due_is_looked_for_when_all_jobs_are_back_and_not_after_each(made):
    """Ten thousand partitions, each of whose flushes looked through all the others, took the reactor's time for it."""
    looks = []
    jobs = made.housekeeping.jobs
    made.housekeeping.jobs = lambda now: looks.append(len(made.housekeeping.log)) or jobs(now)
    made.housekeeping.due = [made.job(str(number)) for number in range(100)]
    made.flusher.look()
    for _ in range(100):
        made.worker.step()
    assert looks == [0, 200], "before the first, and after the last has been run and finished"


def test_jobs_run_in_order_and_come_back_finished(made):
    made.housekeeping.due = [made.job("a"), made.job("b"), made.job("c")]
    made.flusher.look()
    for _ in range(3):
        made.worker.step()
    assert made.housekeeping.log == ["ran a", "finished a", "ran b", "finished b", "ran c", "finished c"]


def test_a_finished_job_may_make_another_one_due(made):
    made.housekeeping.due = [made.job("a")]
    made.flusher.look()
    made.housekeeping.due = [made.job("b")]
    made.worker.step()
    made.worker.step()
    assert made.housekeeping.log[-1] == "finished b"


def test_wanting_often_in_a_turn_looks_once(made):
    made.flusher.want()
    made.flusher.want()
    assert len(made.clock.getDelayedCalls()) == 1
    made.housekeeping.due = [made.job("a")]
    made.clock.advance(0)
    assert len(made.worker.work) == 1


def test_idle_means_nothing_due_and_nothing_under_way(made):
    made.housekeeping.due = [made.job("a")]
    idle = made.flusher.idle()
    made.clock.advance(0)
    assert not idle.called
    made.worker.step()
    assert idle.called


def test_a_failed_force_ends_the_process_and_nothing_else_is_run(made):
    problem = OSError(5, "Input/output error")
    made.housekeeping.due = [made.job("bad", problem)]
    made.flusher.look()
    made.worker.step()
    [(doing, error)] = made.failures
    assert doing == "running FakeJob"
    assert error is problem
    assert "Input/output error" in made.housekeeping.failed
    made.housekeeping.due = [made.job("next")]
    made.flusher.look()
    assert not made.worker.work


def test_a_job_that_cannot_be_finished_ends_the_process(made):
    made.housekeeping.due = [made.job("impossible")]
    made.flusher.look()
    made.worker.step()
    assert isinstance(made.failures[0][1], AssertionError)


def test_a_thread_that_is_told_to_exit_ends_the_process(made):
    made.housekeeping.due = [made.job("a", SystemExit(3))]
    made.flusher.look()
    made.worker.step()
    assert isinstance(made.failures[0][1], SystemExit)


def test_a_look_that_fails_ends_the_process_for_what_it_had_begun_is_lost(made):
    def jobs(_):
        raise OSError(5, "Input/output error", "journal/spare.next")

    made.housekeeping.jobs = jobs
    made.flusher.look()
    assert "Input/output error" in made.housekeeping.failed
    [(doing, error)] = made.failures
    assert doing == "looking for what is due"
    assert isinstance(error, OSError)
    made.flusher.look()
    assert len(made.failures) == 1


class ThreadAhead(ManualWorker):
    """A thread that comes to the end of its queue before the reactor hears of any of it."""

    def step_all(self):
        said = []
        while self.work:
            work, done, failed = self.work.pop(0)
            try:
                said.append((done, work()))
            except BaseException as error:  # noqa: BLE001
                said.append((failed, error))
        for tell, what in said:
            tell(what)


def test_what_the_thread_has_already_been_given_does_not_run_after_a_job_that_failed():
    """It may stand on the one that failed."""
    housekeeping, worker, failures = FakeHousekeeping(), ThreadAhead(), []
    flusher = Flusher(housekeeping, worker, Clock(), lambda doing, error: failures.append(error))
    problem = OSError(5, "Input/output error")
    housekeeping.due = [
        FakeJob("first", housekeeping.log),
        FakeJob("bad", housekeeping.log, problem),
        FakeJob("next", housekeeping.log),
    ]
    flusher.look()
    worker.step_all()
    assert housekeeping.log == ["ran first", "finished first"]
    assert failures == [problem]


@pytest.mark.parametrize("failing", [Operation.FORCE, Operation.FORCE_DIRECTORY])
def test_no_checkpoint_is_written_after_a_failed_force_of_logs(failing):
    """A force is told of a failure once: the checkpoint's own would succeed, and it would claim what is lost.

    Found by the simulation, with a look at what is due between the flushes and the force that comes after them.
    """
    room = Room()
    room.topic(partitions=2)
    for number in (1, 2):
        room.send(b"message", number=number)
    worker, failures = ThreadAhead(), []
    flusher = Flusher(room.engine, worker, Clock(), lambda doing, error: failures.append(doing))
    room.engine.housekeeping.request_checkpoint()
    flusher.look()
    kinds = [type(work.args[0]) for work, _, _ in worker.work]
    for _ in range(kinds.index(ForceLogs)):
        worker.step()
    assert room.store(1).flushed_offset == room.store(2).flushed_offset == 1
    room.engine.sync()
    flusher.look()
    kinds = [type(work.args[0]) for work, _, _ in worker.work]
    assert kinds.index(ForceLogs) < kinds.index(WriteCheckpoint)
    room.plan.faults.append(Fault(failing, path="partitions/*"))
    worker.step_all()
    assert failures == ["running ForceLogs"]
    for survive in (0, None):
        after = room.crashed(3, survive)
        assert [after.values(number) for number in (1, 2)] == [[b"message"]] * 2
