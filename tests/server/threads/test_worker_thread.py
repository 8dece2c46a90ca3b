"""Test that work runs on the thread in order, and its results return to the reactor's thread."""

import threading
from queue import SimpleQueue

import pytest

from txbroker.server.threads.worker_thread import WorkerThread

PATIENCE = 10


class Reactor:
    """The reactor's side: calls from threads, run where `step` is called."""

    def __init__(self):
        self.calls = SimpleQueue()

    def call_from_thread(self, function, *arguments):
        self.calls.put((function, arguments))

    def step(self):
        function, arguments = self.calls.get(timeout=PATIENCE)
        function(*arguments)


@pytest.fixture
def reactor():
    return Reactor()


@pytest.fixture
def thread(reactor):
    thread = WorkerThread("test", reactor.call_from_thread)
    thread.start()
    yield thread
    assert thread.stop(PATIENCE)


def test_work_is_done_in_order_on_another_thread_and_answered_on_ours(reactor, thread):
    seen, threads = [], set()

    def work(number):
        threads.add(threading.current_thread())
        return number

    for number in range(5):
        thread.submit(lambda number=number: work(number), seen.append, pytest.fail)
    for _ in range(5):
        reactor.step()
    assert seen == [0, 1, 2, 3, 4]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_a_failure_comes_back_and_the_thread_goes_on(reactor, thread):
    errors, seen = [], []
    thread.submit(lambda: 1 // 0, pytest.fail, errors.append)
    thread.submit(lambda: "next", seen.append, pytest.fail)
    reactor.step()
    reactor.step()
    assert isinstance(errors[0], ZeroDivisionError)
    assert seen == ["next"]


def test_several_threads_work_at_once(reactor):
    thread = WorkerThread("pool", reactor.call_from_thread, threads=2)
    thread.start()
    meeting = threading.Barrier(2)
    seen = []
    for _ in range(2):
        thread.submit(lambda: meeting.wait(PATIENCE), seen.append, pytest.fail)
    reactor.step()
    reactor.step()
    assert sorted(seen) == [0, 1]
    assert thread.stop(PATIENCE)


def test_stopping_lets_what_was_submitted_be_done(reactor):
    thread = WorkerThread("last", reactor.call_from_thread)
    done = []
    thread.submit(lambda: done.append(1), lambda _: None, pytest.fail)
    thread.start()
    assert thread.stop(PATIENCE)
    assert done == [1]


def test_a_thread_that_hangs_does_not_hold_up_stopping(reactor):
    thread = WorkerThread("stuck", reactor.call_from_thread)
    release = threading.Event()
    thread.submit(release.wait, lambda _: None, pytest.fail)
    thread.start()
    assert not thread.stop(0.01)
    release.set()


def test_stopping_one_that_never_started_is_fine(reactor):
    assert WorkerThread("unused", reactor.call_from_thread).stop(PATIENCE)
