"""Test the thread that forces small groups: on the reactor's side, and a broker whose disk refuses."""

import errno
import os
import resource
import threading
from contextlib import suppress
from select import select

import pytest
from twisted.logger import capturedLogs

import txbroker
from journal.vfs.force_calls import FORCING, WRITING
from journal.wal.writer import ALONE_BYTES, Placed
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.server.threads import force_thread
from txbroker.server.threads.force_thread import ForceThread

PATIENCE = 10


class Reactor:
    """The reactor's side: what can be read is read where `step` is called."""

    def __init__(self):
        self.readers, self.calls, self.came = [], [], threading.Event()

    def addReader(self, reader):
        self.readers.append(reader)

    def removeReader(self, reader):
        self.readers.remove(reader)

    def callFromThread(self, function, *arguments):
        self.calls.append((function, arguments))
        self.came.set()

    def callLater(self, delay, function, *arguments):
        self.callFromThread(function, *arguments)

    def step(self):
        for reader in select(self.readers, [], [], PATIENCE)[0]:
            reader.doRead()

    def call(self):
        assert self.came.wait(PATIENCE)
        function, arguments = self.calls.pop(0)
        function(*arguments)


@pytest.fixture
def reactor():
    return Reactor()


@pytest.fixture
def thread(reactor):
    made = ForceThread(reactor)
    made.start()
    yield made
    if made in reactor.readers:
        assert made.stop(PATIENCE)


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_groups_are_written_one_after_the_other_and_told_on_the_reactor(reactor, thread, file):
    seen = []
    for number in range(5):
        pieces = [b"head", memoryview(b"some data"), bytes([number])]
        thread.submit(Placed(file, 14 * number, pieces), seen.append)
        reactor.step()
    assert [(forced.error, forced.stage) for forced in seen] == [(0, FORCING)] * 5
    assert all(forced.begun <= forced.written <= forced.forced for forced in seen)
    assert os.pread(file, 100, 0) == b"".join(b"headsome data" + bytes([number]) for number in range(5))


def test_the_largest_group_has_room(reactor, thread, file):
    seen, data = [], os.urandom(ALONE_BYTES)
    thread.submit(Placed(file, 0, [data]), seen.append)
    reactor.step()
    assert (seen[0].error, os.pread(file, ALONE_BYTES, 0)) == (0, data)


def test_an_error_is_told(reactor, thread):
    seen = []
    full = os.open("/dev/full", os.O_WRONLY)
    thread.submit(Placed(full, 0, [b"abc"]), seen.append)
    reactor.step()
    os.close(full)
    assert (seen[0].error, seen[0].stage) == (errno.ENOSPC, WRITING)


def test_whatever_comes_of_an_answer_later_ones_are_heard(reactor, thread, file):
    seen = []

    def fails(_):
        thread.submit(Placed(file, 0, [b"abc"]), seen.append)
        raise ZeroDivisionError

    thread.submit(Placed(file, 0, [b"abc"]), fails)
    with capturedLogs() as logged:
        reactor.step()
    reactor.step()
    assert [forced.error for forced in seen] == [0]
    [event] = [event for event in logged if event.get("log_failure")]
    assert event["log_failure"].type is ZeroDivisionError


def test_a_wake_up_without_a_job_is_harmless(thread):
    thread.doRead()


def test_stopping_waits_for_the_job_and_nobody_hears_of_it(reactor, thread, file):
    seen = []
    thread.submit(Placed(file, 0, [b"abc"]), seen.append)
    assert thread.stop(PATIENCE)
    assert os.pread(file, 10, 0) == b"abc"
    assert (seen, reactor.readers) == ([], [])


def test_stopping_one_that_never_started_is_fine(reactor):
    made = ForceThread(reactor)
    reactor.addReader(made)
    assert made.stop(PATIENCE)


def test_a_force_that_hangs_does_not_hold_up_stopping(reactor, monkeypatch, file):
    hangs = threading.Event()
    monkeypatch.setattr(force_thread, "serve", lambda *_: hangs.wait(PATIENCE))
    made = ForceThread(reactor)
    made.start()
    made.submit(Placed(file, 0, [b"abc"]), pytest.fail)
    assert not made.stop(0.01)
    hangs.set()


def test_a_thread_that_has_ended_fails_the_job_under_way_and_every_later_one(reactor, monkeypatch, file):
    ends, seen = threading.Event(), []

    def broken(*_):
        ends.wait(PATIENCE)
        raise OSError(errno.EBADF, "an eventfd")

    monkeypatch.setattr(force_thread, "serve", broken)
    made = ForceThread(reactor)
    made.start()
    made.submit(Placed(file, 0, [b"abc"]), seen.append)
    ends.set()
    reactor.call()
    made.submit(Placed(file, 0, [b"abc"]), seen.append)
    assert len(seen) == 1, "not before it has returned"
    reactor.call()
    assert [(forced.error, forced.stage) for forced in seen] == [(errno.EBADF, WRITING)] * 2
    assert os.fstat(file).st_size == 0
    reactor.removeReader(made)


@pytest.mark.slow
def test_a_broker_whose_journal_cannot_be_written_stops_and_says_so_and_has_all_it_acknowledged(tmp_path):
    """A bound on the size of files makes each later write fail: bytes of a group may be there, nothing more."""
    acknowledged = []
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address, timeout=2.0) as broker:
            broker.create_topic("t")
            for number in range(20):
                broker.send("t", b"%d" % number)
                acknowledged.append(b"%d" % number)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
            with suppress(errors.TxBrokerError):
                for number in range(20, 10_000):
                    broker.send("t", b"%d" % number)
                    acknowledged.append(b"%d" % number)
        eventually(lambda: process.exit_code is not None)
        assert process.exit_code != 0
        assert "writing journal/" in process.output
        assert os.strerror(errno.EFBIG) in process.output
    with BrokerProcess(tmp_path / "data") as process, txbroker.connect(process.address) as broker:
        found = [message.value for message in broker.read("t", 0, 0)]
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1
