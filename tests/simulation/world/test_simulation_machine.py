"""Test the simulated machine: threads that go on call by call, a power switch, a reactor's turns, a network in
pieces.
"""

from collections import Counter

import pytest
from greenlet import getcurrent

from journal.testing import Fault, FaultFilesystem, ManualClock, MemoryFilesystem, Operation, PowerCut
from tests.simulation.world.machine import Plan, Reactor, SteppedWorker, kind_of_file
from tests.simulation.world.wire import Connection


@pytest.fixture
def plan():
    return Plan(getcurrent(), Counter())


@pytest.fixture
def disk(plan):
    return FaultFilesystem(MemoryFilesystem(), plan)


class TestThreads:
    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    def worker(self, calls):
        return SteppedWorker("writer", lambda *call: calls.append(call), threads=2)

    def test_a_thread_stops_before_every_call_on_files(self, disk, worker, calls):
        def work():
            disk.make_directory("a")
            disk.make_directory("b")
            return "result"

        worker.submit(work, "done", "failed")
        assert worker.step(0)
        assert disk.inner.list_directory("") == []
        worker.step(1)
        assert disk.inner.list_directory("") == ["a"]
        assert (calls, worker.idle) == ([], False)
        worker.step(1)
        assert disk.inner.list_directory("") == ["a", "b"]
        assert (calls, worker.idle) == ([("done", "result")], True)
        assert not worker.step(1)

    def test_an_error_is_handed_back(self, worker, calls):
        error = ValueError("x")

        def work():
            raise error

        worker.submit(work, "done", "failed")
        worker.step(1)
        assert calls == [("failed", error)]

    def test_two_threads_take_turns_as_they_are_told(self, disk, worker):
        for name in "ab":
            worker.submit(
                lambda name=name: [disk.make_directory(f"{name}{number}") for number in range(3)], "", ""
            )
        worker.step(1, 0)
        worker.step(2, 1)
        worker.step(1, 0)
        assert disk.inner.list_directory("") == ["a0", "a1", "b0", "b1"]

    def test_when_the_process_is_gone_its_threads_change_nothing_and_report_nothing(
        self, disk, plan, worker, calls
    ):
        def work():
            try:
                disk.make_directory("a")
            finally:
                disk.make_directory("b")

        worker.submit(work, "done", "failed")
        worker.submit(work, "done", "failed")
        worker.step(0)
        plan.off = True
        worker.kill()
        assert disk.inner.list_directory("") == []
        assert calls == []
        assert not worker.step(1, 1)

    def test_stopping_carries_out_what_was_submitted(self, disk, worker, calls):
        for name in "ab":
            worker.submit(lambda name=name: disk.make_directory(name), name, "")
        assert worker.stop(0)
        assert [call[0] for call in calls] == ["a", "b"]


class TestPower:
    def test_it_is_cut_at_the_change_that_was_asked_for_and_the_caller_is_known(self, disk, plan):
        plan.cut_in = 2
        disk.make_directory("journal")
        disk.exists("journal")
        with pytest.raises(PowerCut):
            disk.open("journal/7.journal", create=True)
        assert plan.off
        site, operation, kind = plan.cut_at
        assert site.startswith("test_simulation_machine.py:")
        assert (operation, kind) == ("create", "journal/*.journal")

    def test_it_can_be_cut_at_some_kind_of_change_only(self, disk, plan):
        for name in ("a", "b"):
            disk.make_directory(name)
        plan.cut_in, plan.cut_on = 2, (Operation.FORCE_DIRECTORY, "b")
        disk.force_directory("b")
        disk.force_directory("a")
        disk.remove_directory("a")
        with pytest.raises(PowerCut):
            disk.force_directory("b")

    def test_what_failed_as_planned_is_noted(self, disk, plan):
        plan.faults.append(Fault(Operation.READ_NOW, error=11))
        file = disk.open("a", create=True)
        assert file.read_now(0, 1) is None
        assert not plan.struck
        plan.faults.append(Fault(Operation.WRITE, error=None, short=1))
        assert file.write_some(0, [b"ab"]) == 1
        assert not plan.struck
        plan.faults.append(Fault(Operation.FORCE))
        with pytest.raises(OSError, match="as planned"):
            file.force()
        assert plan.struck

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("", "the data directory"),
            ("lock", "lock"),
            ("journal/00012.journal", "journal/*.journal"),
            ("partitions", "partitions"),
            ("partitions/a.b-0.1", "partitions/*"),
            ("partitions/a-0.1/00.log", "partitions/*/*.log"),
        ],
    )
    def test_paths_are_told_by_kind(self, path, kind):
        assert kind_of_file(path) == kind


class TestReactor:
    @pytest.fixture
    def reactor(self):
        return Reactor(ManualClock())

    def test_what_a_turn_schedules_belongs_to_the_next_one(self, reactor):
        done = []

        def again():
            done.append(len(done))
            reactor.callLater(0, again)
            reactor.callFromThread(done.append, "thread")

        reactor.callLater(0, again)
        assert reactor.turn()
        assert done == [0]
        assert reactor.turn()
        assert done == [0, "thread", 2]

    def test_a_timer_that_the_same_turn_cancels_does_not_ring(self, reactor):
        done = []
        reactor.callLater(0, lambda: later.cancel())
        later = reactor.callLater(0, done.append, 1)
        reactor.turn()
        assert (done, reactor.turn()) == ([], False)

    def test_time_passes_for_timers_and_for_the_machines_clock_together(self):
        clock, done = ManualClock(monotonic=5), []
        reactor = Reactor(clock)
        reactor.callLater(2, lambda: done.append(clock.monotonic()))
        reactor.pass_time(1_999_999)
        assert done == []
        reactor.pass_time(1)
        assert done == [2_000_005]


class Peer:
    """A protocol that keeps what happens to it."""

    def __init__(self):
        self.got, self.lost = [], 0
        self.paused = 0

    def buildProtocol(self, address):
        return self

    def makeConnection(self, transport):
        self.transport = transport
        transport.registerProducer(self, True)

    def dataReceived(self, data):
        self.got.append(data)

    def connectionLost(self, reason):
        self.lost += 1

    def pauseProducing(self):
        self.paused += 1

    def resumeProducing(self):
        self.paused -= 1


class TestNetwork:
    @pytest.fixture
    def peer(self):
        return Peer()

    @pytest.fixture
    def wire(self, peer):
        return Connection(peer, 1, lambda delay, call: call(), buffer=4)

    def test_bytes_come_in_pieces_and_not_while_the_broker_does_not_read(self, wire, peer):
        wire.to_broker += b"abc"
        wire.pauseProducing()
        assert not wire.deliver(9)
        wire.resumeProducing()
        wire.deliver(2)
        wire.deliver(2)
        assert peer.got == [b"ab", b"c"]
        assert not wire.deliver(2)

    def test_it_is_cut_while_a_part_of_what_was_sent_has_come_alone(self, wire):
        wire.to_broker += b"abc"
        assert not wire.is_cut
        wire.deliver(2)
        assert wire.is_cut
        wire.deliver(2)
        assert not wire.is_cut

    def test_when_the_client_is_gone_what_it_had_sent_may_come_first(self, wire, peer):
        wire.to_broker += b"abc"
        wire.leave(2)
        assert wire.deliver(9)
        assert (peer.got, peer.lost) == ([b"ab"], 0)
        assert wire.deliver(9)
        wire.deliver(9)
        assert peer.lost == 1
        wire.write(b"nobody reads this")
        assert wire.take(9) == b""

    def test_the_broker_closes_after_its_last_byte_or_at_once(self, peer):
        gentle = Connection(peer, 1, lambda delay, call: call(), buffer=4)
        gentle.write(b"ab")
        gentle.loseConnection()
        assert gentle.take(1) == b"a"
        assert not gentle.broker_gone
        gentle.take(1)
        assert gentle.broker_gone
        assert peer.lost == 1
        rough = Connection(peer, 1, lambda delay, call: call(), buffer=4)
        rough.write(b"ab")
        rough.abortConnection()
        assert (rough.take(9), rough.broker_gone, peer.lost) == (b"", True, 2)

    def test_a_broker_whose_peer_does_not_read_is_told_so_and_told_when_all_has_been_read(self, wire, peer):
        wire.write(b"abcd")
        assert peer.paused == 0
        wire.write(b"e")
        wire.write(b"f")
        assert peer.paused == 1
        wire.take(5)
        assert peer.paused == 1
        wire.take(5)
        assert peer.paused == 0
