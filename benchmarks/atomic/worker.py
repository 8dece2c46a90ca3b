"""A worker process of the benchmark of `txbroker.atomic`; :mod:`benchmarks.atomic` starts it.

It writes ``ready``, reads when to begin and to end (on the monotonic clock, which all processes share), works, and
writes its counts. It ends when its standard input does.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array

import msgspec

from benchmarks.atomic.loads import LOADS, Load, Once, Process

WARM_UP = 3
"""Pieces of work before a worker is ready."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a worker. ``counted`` pieces fell into the measured time; ``total`` has those of the warm-up too.

    ``latencies`` are of those counted, in seconds. ``processor`` is the process's own processor time while measuring.
    """

    counted: int
    total: int
    latencies: list[float]
    processor: float


class Thread:
    """A thread that works with connections of its own."""

    def __init__(self, once: Once, name: str) -> None:
        self.latencies = array("d")
        self.total = 0
        self.error: BaseException | None = None
        self._once = once
        self._name = name

    def warm_up(self) -> None:
        """Do the first pieces of work, which open connections, import modules and start threads."""
        for _ in range(WARM_UP):
            self._once(f"{self._name}-{self.total}")
            self.total += 1

    def run(self, begin: float, end: float) -> None:
        """Work until ``end``; count the pieces that begin and end between the two times."""
        once, now = self._once, time.monotonic()
        try:
            while now < end:
                once(f"{self._name}-{self.total}")
                self.total += 1
                before, now = now, time.monotonic()
                if before >= begin and now <= end:
                    self.latencies.append(now - before)
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            self.error = error


def main() -> None:
    """Run one worker."""
    load, database, broker, name = sys.argv[1:5]
    process = Process(broker)
    loads = [Load(database, process) for _ in range(int(sys.argv[5]))]
    threads = [Thread(LOADS[load](each), f"{name}-{number}") for number, each in enumerate(loads)]
    for thread in threads:
        thread.warm_up()
    print("ready", flush=True)
    begin, end = (float(word) for word in sys.stdin.readline().split())
    workers = [threading.Thread(target=thread.run, args=(begin, end)) for thread in threads]
    for worker in workers:
        worker.start()
    time.sleep(max(0.0, begin - time.monotonic()))
    used = time.process_time()
    for worker in workers:
        worker.join()
    used = time.process_time() - used
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    latencies = [latency for thread in threads for latency in thread.latencies]
    done = Done(
        counted=len(latencies),
        total=sum(thread.total for thread in threads),
        latencies=latencies,
        processor=used,
    )
    print(msgspec.json.encode(done).decode(), flush=True)
    sys.stdin.read()  # until all threads have reported: closing must not disturb those that still measure
    process.close()  # before the databases: what is left is delivered
    for each in loads:
        each.close()
    print("closed", flush=True)


if __name__ == "__main__":
    main()
