"""Test the binary semaphore between threads: any number of releases let one pass, and an interrupt leaves it usable."""

import itertools
import signal
import threading
import time

import pytest

from txbroker.client.blocking import semaphore as module
from txbroker.client.blocking.semaphore import BinarySemaphore


class Interrupt(Exception):
    """What a signal's handler raises."""


@pytest.fixture(params=["in one", "in steps"])
def waiting(request, monkeypatch):
    """Also as where no signal ends a wait."""
    if request.param == "in steps":
        monkeypatch.setattr(module, "INTERRUPTIBLE", False)
        monkeypatch.setattr(module, "LONGEST", 0.01)


def test_many_releases_let_one_pass():
    semaphore = BinarySemaphore()
    assert not semaphore.acquire(0.0)
    for _ in range(3):
        semaphore.release()
    assert semaphore.acquire()
    assert not semaphore.acquire(0.0)


@pytest.mark.usefixtures("waiting")
def test_a_wait_ends_in_time_and_not_before():
    semaphore = BinarySemaphore()
    began = time.monotonic()
    assert not semaphore.acquire(0.05)
    assert 0.05 <= time.monotonic() - began < 5.0


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("seconds", [None, 30.0])
def test_a_release_wakes_who_waits(seconds):
    semaphore, passed = BinarySemaphore(), []
    thread = threading.Thread(target=lambda: passed.append(semaphore.acquire(seconds)), daemon=True)
    thread.start()
    time.sleep(0.02)
    semaphore.release()
    thread.join(20.0)
    assert passed == [True]


def test_whoever_is_interrupted_while_it_waits_or_releases_loses_no_later_word():
    semaphore, back = BinarySemaphore(), BinarySemaphore()
    over = threading.Lock()

    def answers():
        # A signal that this thread takes is told to the main thread later: after the timer was switched off.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        while semaphore.acquire(30.0) and not over.locked():
            back.release()

    armed: list[bool] = []

    def interrupt(number, frame):
        if armed:  # another thread of the process may take the signal, and tell the main thread of it later
            raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=answers, daemon=True)
    thread.start()
    interrupted, numbers = 0, itertools.count()
    try:
        while interrupted < 300:
            try:
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, 0.00001 + 0.000001 * (next(numbers) % 100))
                    semaphore.release()
                    back.acquire()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    armed.clear()
            except Interrupt:
                armed.clear()
                interrupted += 1
            back.acquire(0.0)  # what has come since, or comes into the next round
            semaphore.release()
            assert back.acquire(20.0)
    finally:
        signal.signal(signal.SIGALRM, before)
        over.acquire()
        semaphore.release()
        thread.join(20.0)
    assert not thread.is_alive()
