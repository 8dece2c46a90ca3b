"""Programs of :mod:`tests.databases.outbox.worker` in processes of their own, and what must be so at their end."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import txbroker
from tests.databases.orders import execute
from tests.databases.outbox.scene import rows_of
from tests.databases.outbox.worker import SPACE
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from txbroker.databases.urls import connector

SPACES = 1000
"""Connections that one program may open."""


class Worker:
    """One program; it has said what stands in ``begun`` and ``committed``."""

    def __init__(self, url, address, topic, serial=0, threads=1):
        command = [sys.executable, "-m", "tests.databases.outbox.worker", url, address, topic]
        self.process = subprocess.Popen(
            [*command, str(serial * SPACES), str(threads)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.begun, self.committed, self.raised = [], [], []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("!"):
                self.raised.append(line)
            elif line.startswith("+"):
                self.committed.append(int(line[1:]))
            else:
                self.begun.append(int(line))

    def goes_on(self, blocks=20):
        before = len(self.committed)
        eventually(lambda: len(self.committed) >= before + blocks)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.process.kill()
        self._over()

    def end(self):
        """Have it end in order."""
        self.process.stdin.close()
        self._over()
        assert self.process.returncode == 0

    def _over(self):
        self.process.wait(60.0)
        self._reader.join(60.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self.process.kill()
            self._over()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


def everything(broker, topic):
    found, at = [], 0
    while some := broker.read(topic, 0, at):
        found += [int(message.value) for message in some]
        at = some[-1].offset + 1
    return found


def check(url, broker, topic, *workers):
    """Each committed block has arrived once, those of one connection in their order, and nothing is left."""
    opens = connector(url)
    with txbroker.Resolver(opens, broker) as resolver:
        eventually(lambda: resolver.resolve().is_quiet and not rows_of(opens))
    with contextlib.closing(opens()) as database:
        rows = {number for (number,) in execute(database, "SELECT number FROM orders")}
    arrived = everything(broker, topic)
    assert len(arrived) == len(set(arrived)), "some arrived twice"
    assert set(arrived) == rows
    for worker in workers:
        assert set(worker.committed) <= rows
    last = dict[int, int]()
    for number in arrived:
        assert last.get(number // SPACE, -1) < number, "they are not in the order of their connection"
        last[number // SPACE] = number
    return arrived
