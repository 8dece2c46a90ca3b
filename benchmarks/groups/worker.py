"""A worker process of the benchmark: ``python -m benchmarks.groups.worker URL TOPIC GROUP CHOICES``.

``CHOICES`` are options of ``Connection.work`` in JSON; ``failing``: every so-manieth message fails at first;
``database``: the path of an SQLite database, with which each message is one ``atomic`` block. Each line of its input it
answers with the number of messages that it has handled; "die" has it killed at the next COMMIT. It ends with its input.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from functools import partial
from typing import Any

import txbroker

WAIT = 0.005
"""Seconds that the handler waits."""
PATIENCE = 60.0
"""Seconds for which a worker waits for SQLite's lock."""


class Mortal(sqlite3.Connection):
    """A connection at whose COMMIT the process can be killed: the broker has prepared then."""

    is_doomed = False

    def commit(self) -> None:
        """Commit, or die."""
        if Mortal.is_doomed and self.in_transaction:
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit()


def main(url: str, topic: str, group: str, choices: str) -> None:
    """Work until the input ends."""
    options: dict[str, Any] = json.loads(choices)
    failing, database = options.pop("failing", 0), options.pop("database", "")
    if database:
        options["transaction"] = partial(sqlite3.connect, database, timeout=PATIENCE, factory=Mortal)
    numbers = itertools.count()
    handled = 0

    def handle(message: txbroker.Message, *more: Any) -> None:
        nonlocal handled
        if more and not database:
            more[0].send("done", message.value)
        time.sleep(WAIT)
        if failing and not message.offset % failing and not message.attempts:
            raise ValueError("the first attempt fails")
        handled = next(numbers) + 1

    with txbroker.connect(url) as broker:
        worker = broker.work(topic, group, handle, **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        for line in sys.stdin:
            Mortal.is_doomed = line == "die\n"
            print(handled, flush=True)
        worker.stop()
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
