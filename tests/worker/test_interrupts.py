"""Test that an exception of a signal's handler, at any line of the main thread's part of a worker, ends it in order."""

import sys
import threading

import pytest

from tests.worker.scene import PATIENCE, fill, unfinished
from txbroker.worker import blocking

pytestmark = pytest.mark.slow


class Interrupt(BaseException):
    """What a signal's handler raises."""


class AtLine:
    """Raises at the nth line that this thread runs in the module of the worker."""

    def __init__(self, number):
        self.left = number
        self.raised = False

    def __call__(self, frame, event, argument):
        return self.trace if frame.f_code.co_filename == blocking.__file__ else None

    def trace(self, frame, event, argument):
        if event == "line" and not self.raised:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise Interrupt
        return self.trace


def test_an_interrupt_at_any_line_ends_all_threads_and_leaves_the_connection_usable(broker, topic):
    fill(broker, topic, 50)
    handled, number, before = set(), 0, threading.active_count()
    while True:
        group = f"{topic}-{number}"

        made = []

        def handle(message, group=group, made=made):
            handled.add((group, message.offset))
            if sum(one == group for one, _ in handled) == 50:
                made[0].stop()

        worker = broker.work(topic, group, handle, concurrency=2, partitions=[0])
        made.append(worker)
        at, previous = AtLine(number), sys.gettrace()
        sys.settrace(at)
        try:
            worker.run()
        except Interrupt:
            pass
        finally:
            sys.settrace(previous)
        worker._core.abandon()
        for thread in threading.enumerate():
            if thread.name == "txbroker-worker":
                thread.join(PATIENCE)
                assert not thread.is_alive(), number
        left = unfinished(broker, topic, group, [0])
        assert {offset for one, offset in handled if one == group} == set(range(50)) - set(left), number
        if not at.raised:
            break
        number += 1
    assert left == []
    assert number > 20
    assert threading.active_count() <= before + 2
