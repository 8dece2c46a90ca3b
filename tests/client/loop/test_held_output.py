"""Test the thread that sends held output in time, with holders that note what it asks of them."""

import logging
import math
import threading
import time

import pytest

from tests.support.waiting import eventually
from txbroker.client.blocking import held_output
from txbroker.client.core.core import HELD


class Holder:
    def __init__(self):
        self.held_until = math.inf
        self.sent = []

    def hold(self, seconds=HELD):
        self.held_until = time.monotonic() + seconds

    def send_held(self):
        self.sent.append((time.monotonic(), self.held_until, threading.current_thread().name))
        self.held_until = math.inf


@pytest.fixture
def pacer(monkeypatch):
    monkeypatch.setattr(held_output, "QUIET", 3)
    return held_output.Pacer()


def test_output_is_sent_when_its_time_has_come_and_not_before(pacer):
    holder = Holder()
    holder.hold(0.05)
    pacer.expect(holder)
    eventually(lambda: holder.sent)
    when, until, thread = holder.sent[0]
    assert when >= until
    assert thread == "txbroker-held"


def test_output_that_went_with_other_requests_is_left_alone(pacer):
    first, second = Holder(), Holder()
    first.hold()
    pacer.expect(first)
    first.held_until = math.inf  # it was sent
    second.hold(0.02)
    pacer.expect(second)
    eventually(lambda: second.sent)
    assert not first.sent


@pytest.mark.slow
def test_it_wakes_from_its_sleep_whenever_output_is_expected(pacer):
    """Also if that comes while it falls asleep."""
    holder = Holder()
    for number in range(200):
        holder.hold(0.0)
        pacer.expect(holder)
        eventually(lambda: len(holder.sent) > number, seconds=5.0)  # noqa: B023 - it is called at once
        time.sleep(number % 10 * HELD / 2)
    assert threading.active_count() < 20


@pytest.mark.slow
def test_it_looks_at_nothing_while_nothing_is_expected(pacer):
    holder = Holder()
    pacer.expect(holder)
    eventually(lambda: pacer._is_asleep)
    holder.hold(0.0)  # nobody has said so: it would be seen if it looked
    time.sleep(20 * HELD)
    assert not holder.sent


def test_a_holder_whose_output_cannot_be_sent_keeps_no_other_waiting(pacer, caplog):
    class Broken(Holder):
        def send_held(self):
            super().send_held()
            raise OSError("no such luck")

    caplog.set_level(logging.ERROR, "txbroker.client")
    broken, other = Broken(), Holder()
    broken.hold(0.0)
    pacer.expect(broken)
    eventually(lambda: broken.sent)
    other.hold(0.0)
    pacer.expect(other)
    eventually(lambda: other.sent)
    assert "could not be sent" in caplog.text


def test_a_closed_connection_is_forgotten(pacer):
    holder = Holder()
    pacer.expect(holder)
    pacer.forget(holder)
    pacer.forget(holder)
    assert not pacer._holders


def test_a_child_process_begins_anew(pacer):
    holder = Holder()
    pacer.expect(holder)
    eventually(lambda: pacer._is_asleep)
    pacer.forked()  # as in a child, where the thread is gone
    assert not pacer._holders
    holder.hold(0.0)
    pacer.expect(holder)
    eventually(lambda: holder.sent)
