"""Test that a slow disk is logged once a minute, with what it delayed, also while it hangs."""

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent

from journal.folds.table import client_folds
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from journal.testing.faults import FaultFilesystem, FaultPlan, Operation
from txbroker.broker.slow_forces import LINE_INTERVAL, SLOW_FORCE, STUCK
from txbroker.cli.commands.status import grouped
from txbroker.server.running_broker import RunningBroker
from txbroker.server.settings.config import merged
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder

SECOND = 1_000_000


class Disk:
    """A file system whose forces of the journal take the time that a test says."""

    def __init__(self, clock):
        self.clock = clock
        self.force_takes = 0
        self.filesystem = FaultFilesystem(MemoryFilesystem(), FaultPlan(on_operation=self._before))

    def _before(self, kind, path):
        if kind is Operation.FORCE and path.startswith("journal/"):
            self.clock.advance(self.force_takes)


class Reactor(Clock):
    """Stepped by hand; what a thread hands over comes before timers that are due, as in Twisted's."""

    def callFromThread(self, call, *arguments):
        call(*arguments)


class ManualWorker:
    """A thread that works when it is told to."""

    def __init__(self, name, call_from_thread, threads=1):
        self.work = []
        self.name = name

    def start(self):
        pass

    def submit(self, work, done, failed):
        self.work.append((work, done))

    def step(self):
        work, done = self.work.pop(0)
        done(work())


class Broker:
    """RunningBroker over a real engine on that disk, with one peer; the writer's thread is stepped."""

    def __init__(self):
        self.clock, self.reactor, self.workers = ManualClock(monotonic=SECOND), Reactor(), {}
        self.disk = Disk(self.clock)
        self.engine = recover(self.disk.filesystem, self.clock, folds=client_folds())
        self.engine.sync()
        self.serving = RunningBroker(
            self.engine, merged({"data": "d"}), self.reactor, self._failed, self._worker
        )
        self.serving.start()
        self.writer = self.workers["writer"]
        self.answers = []
        decoder = answer_decoder(1 << 20)
        self.session = self.serving.broker.opened(
            "here", lambda data: self.answers.extend(head for head, _ in decoder.feed(data)), print
        )
        self.number = 0
        self.ask(messages.Hello, messages.MAGIC, list(messages.VERSIONS))
        self.ask(messages.Login, "ANONYMOUS")

    def _worker(self, name, *arguments):
        return self.workers.setdefault(name, ManualWorker(name, *arguments))

    def _failed(self, doing, error):
        raise AssertionError(doing) from error

    def say(self, kind, *fields):
        self.number += 1
        self.serving.broker.received(self.session, kind(self.number, *fields), memoryview(b""))

    def begin_topics(self, count):
        """Requests that wait for one force, which has begun."""
        for _ in range(count):
            self.say(messages.CreateTopic, f"t{self.number}", 1, TopicSettings())
        self.reactor.advance(0)

    def ask(self, kind, *fields):
        self.say(kind, *fields)
        self.settle()
        return self.answers.pop()

    def settle(self):
        self.reactor.advance(0)
        while self.writer.work:
            self.writer.step()
            self.reactor.advance(0)

    def force(self, seconds, requests=1):
        """So many requests wait for a force that takes so long; nothing else does."""
        self.begin_topics(requests)
        self.disk.force_takes = int(seconds * SECOND)
        self.writer.step()
        self.disk.force_takes = 0
        self.settle()

    def pass_time(self, seconds, hanging=False):
        """Second by second, on all clocks, with a disk that works at once or hangs."""
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.reactor.advance(1)
            if not hanging:
                self.settle()


@pytest.fixture
def broker():
    made = Broker()
    yield made
    made.serving._periodic_tasks.stop()


@pytest.fixture
def said():
    """The warnings of the test, as they stand in the log."""
    with capturedLogs() as events:
        yield lambda: [formatEvent(each) for each in events if each["log_level"] is LogLevel.warn]


def test_a_slow_force_is_told_with_its_time_and_how_many_requests_waited(broker, said):
    broker.force(3.2, requests=3)
    [line] = said()
    assert "a force of the journal took 3.2 s (3 requests waited)" in line
    assert "Nothing acknowledged is lost" in line
    assert "dmesg" in line


def test_requests_that_came_while_it_was_under_way_waited_for_it_too(broker, said):
    broker.begin_topics(2)
    broker.begin_topics(5)
    broker.disk.force_takes = 2 * SECOND
    broker.writer.step()
    [line] = said()
    assert "(7 requests waited)" in line


def test_what_is_below_a_second_is_not_told_nor_counted(broker, said):
    broker.force(SLOW_FORCE - 0.001)
    broker.pass_time(120)
    assert said() == []
    assert broker.serving.broker.describing.slow_forces.gauges() == {"slow_forces": 0, "longest_force": 0}
    broker.force(SLOW_FORCE + 0.001)
    assert len(said()) == 1


def test_at_most_one_line_a_minute_and_what_came_in_between_is_told_then_though_no_other_follows(
    broker, said
):
    broker.force(1.5)
    broker.force(4.25, requests=2)
    broker.force(2.0)
    broker.pass_time(int((LINE_INTERVAL // SECOND) - 8))
    assert len(said()) == 1
    broker.pass_time(3)
    first, second = said()
    assert "took 1.5 s" in first
    assert "2 forces of the journal took over 1 s since the last such line, the longest 4.2 s" in second
    assert "(3 requests waited)" in second
    assert "3 since the start" in second
    broker.pass_time(300)
    assert len(said()) == 2
    broker.force(1.25)
    assert "a force of the journal took 1.2 s (1 requests waited)" in said()[2]


def test_a_force_that_does_not_end_is_told_while_it_is_under_way_and_again_each_minute(broker, said):
    broker.begin_topics(4)
    broker.pass_time(STUCK // SECOND, hanging=True)
    assert said() == []
    broker.pass_time(2, hanging=True)
    [line] = said()
    assert "has been under way for more than 10 s (4 requests wait for it)" in line
    broker.pass_time(58, hanging=True)
    assert len(said()) == 1
    broker.pass_time(2, hanging=True)
    assert len(said()) == 2
    broker.settle()
    broker.pass_time(120)
    assert len(said()) == 2, "it has ended, and by its own clock it was fast"


def test_groups_that_follow_each_other_are_not_taken_for_one_that_hangs(broker, said):
    for _ in range(30):
        broker.begin_topics(1)
        broker.pass_time(1, hanging=True)
        broker.settle()
    assert said() == []


def test_the_status_counts_them_and_has_the_longest(broker, said):
    broker.force(1.5)
    broker.force(3.25)
    broker.force(2.0)
    status = broker.ask(messages.AskStatus).values
    assert (status["slow_forces"], status["longest_force"]) == (3, 3_250_000)
    shown = dict(grouped(status))
    assert shown["  slow_forces"] == 3
    assert shown["  longest_force"] == "3s"
