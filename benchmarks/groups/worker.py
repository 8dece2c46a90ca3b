"""A worker process of the benchmark: ``python -m benchmarks.groups.worker URL TOPIC GROUP CHOICES``.

``CHOICES`` are options of ``Connection.work`` in JSON. It answers each line of its input with the number of messages
that it has handled, and ends with its input.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from typing import Any

import txbroker

WAIT = 0.005
"""Seconds that the handler waits."""


def main(url: str, topic: str, group: str, choices: str) -> None:
    """Work until the input ends."""
    numbers = itertools.count()
    handled = 0

    def handle(message: txbroker.Message, *more: Any) -> None:
        nonlocal handled
        if more:
            more[0].send("done", message.value)
        time.sleep(WAIT)
        handled = next(numbers) + 1

    with txbroker.connect(url) as broker:
        worker = broker.work(topic, group, handle, **json.loads(choices))
        thread = threading.Thread(target=worker.run)
        thread.start()
        for _ in sys.stdin:
            print(handled, flush=True)
        worker.stop()
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
