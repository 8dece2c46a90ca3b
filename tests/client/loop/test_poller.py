"""Test waiting for a socket and for another thread, by Linux's means and by those of every system."""

import os
import select
import socket
import threading
import time

import pytest

from txbroker.client.loop import poller
from txbroker.client.loop.poller import Poller


@pytest.fixture(params=["poll and eventfd", "poll and a pair", "select and a pair"])
def waiting(request, monkeypatch):
    if request.param != "poll and eventfd":
        monkeypatch.delattr(os, "eventfd", raising=False)
    if request.param == "select and a pair":
        monkeypatch.setattr(poller, "INTERRUPTIBLE", False)
        monkeypatch.delattr(select, "poll", raising=False)
    made = Poller()
    yield made
    made.close()


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def seconds(waiting, longest):
    begun = time.monotonic()
    waiting.wait(longest)
    return time.monotonic() - begun


def test_a_wait_ends_with_its_time(waiting):
    assert 0.04 < seconds(waiting, 0.05) < 5


def test_a_word_from_another_thread_ends_the_wait_and_only_that(waiting):
    teller = threading.Timer(0.05, waiting.wake)
    teller.start()
    assert seconds(waiting, 30) < 5
    teller.join()
    assert seconds(waiting, 0.05) > 0.04


@pytest.mark.slow
def test_a_word_said_before_the_wait_is_not_lost_however_often_it_is_said(waiting):
    for _ in range(100_000):
        waiting.wake()
    assert seconds(waiting, 30) < 5


def test_a_wait_ends_when_there_is_something_to_read(waiting, pair):
    near, far = pair
    waiting.watch(near)
    assert seconds(waiting, 0.05) > 0.04
    far.send(b"a")
    assert seconds(waiting, 30) < 5
    waiting.forget(near)
    assert seconds(waiting, 0.05) > 0.04


def test_a_wait_ends_for_room_to_write_only_while_that_is_wanted(waiting, pair):
    near, _ = pair
    waiting.watch(near, for_writing=True)
    assert seconds(waiting, 30) < 5
    waiting.watch(near)
    assert seconds(waiting, 0.05) > 0.04


def test_a_socket_that_another_thread_closes_ends_no_later_wait(waiting, pair):
    near, _ = pair
    waiting.watch(near)
    waiting.forget(near)
    near.close()
    assert seconds(waiting, 0.05) > 0.04


def test_closing_gives_the_descriptors_back(monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    first = Poller()
    monkeypatch.delattr(os, "eventfd", raising=False)
    second = Poller()
    for made in (first, second, first, second):
        made.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_nobody_closed_gives_its_descriptors_back_with_itself():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.warns(ResourceWarning):
        Poller()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_socket_that_another_thread_closes_as_the_wait_begins_does_not_fail_it(monkeypatch, pair):
    monkeypatch.setattr(poller, "INTERRUPTIBLE", False)
    waiting, real, (near, _) = Poller(), select.select, pair
    waiting.watch(near)

    def closes_first(*arguments):
        waiting.forget(near)
        near.close()
        return real(*arguments)

    monkeypatch.setattr(select, "select", closes_first)
    waiting.wait(0.05)
    monkeypatch.undo()
    assert seconds(waiting, 0.05) > 0.04
    waiting.close()
