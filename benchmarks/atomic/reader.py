"""A consumer that notes when each message can be read, by the monotonic clock, which all processes share.

:mod:`benchmarks.atomic` starts it: it writes ``ready``, reads until it has as many messages as its second argument
says, and writes a JSON object of keys and times.
"""

from __future__ import annotations

import json
import sys
import time

import txbroker
from benchmarks.atomic.loads import TOPIC

PATIENCE = 30.0
"""Seconds for which it waits for a message."""


def main() -> None:
    """Run until all have come, or none comes any more."""
    broker_url, count = sys.argv[1], int(sys.argv[2])
    with (
        txbroker.connect(broker_url) as broker,
        broker.consume(TOPIC, start="latest") as consumer,
    ):
        consumer.poll(0.5)  # it is at the end of each partition from here on
        print("ready", flush=True)
        seen: dict[str, float] = {}
        while len(seen) < count and (found := consumer.poll(PATIENCE)):
            now = time.monotonic()
            for message in found:
                assert message.key is not None
                seen[message.key.decode()] = now
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
