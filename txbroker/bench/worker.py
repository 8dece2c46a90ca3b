"""``python -m txbroker.bench.worker`` is one process of the generator; its standard input tells it what to do.

Lines of JSON. In: a :class:`Share`, then ``start SECONDS`` (of the monotonic clock, which all processes of a machine
share), then perhaps ``stop``; the end of the input is a stop, too. Out: ``{"ready": true}``, progress every half a
second, the :class:`Counted` at the end; or ``{"failed": "..."}``.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from txbroker.bench.connections import Client, Connections, keep_time, run_until
from txbroker.bench.load import Load
from txbroker.bench.plan import Kind, Share
from txbroker.bench.read_load import Following, Reading
from txbroker.bench.send_load import Producing
from txbroker.bench.tally import Counted, Progress
from txbroker.bench.transaction_load import Transacting
from txbroker.client.core.options import Options
from txbroker.client.core.url import parse
from txbroker.errors import TxBrokerError
from txbroker.quiet_logger import quieted

PROGRESS_EVERY = 0.5

LOADS: dict[Kind, type[Load]] = {
    Kind.PRODUCE: Producing,
    Kind.CONSUME: Reading,
    Kind.TRANSACTIONS: Transacting,
    Kind.LATENCY: Following,
}


class Said(msgspec.Struct, omit_defaults=True):
    """A line that a process of the generator writes."""

    ready: bool = False
    progress: Progress | None = None
    counted: Counted | None = None
    failed: str = ""


class Orders:
    """The orders on standard input, read without waiting."""

    def __init__(self) -> None:
        os.set_blocking(0, False)
        self._begun = b""
        self.lines: list[bytes] = []
        self.ended = False

    def read(self) -> None:
        """Read what has arrived."""
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        self.ended = self.ended or not data
        *lines, self._begun = (self._begun + data).split(b"\n")
        self.lines += lines


class Worker:
    """The load of one process, from connecting to the figures."""

    def __init__(self, share: Share, orders: Orders) -> None:
        plan = share.plan
        options = Options(
            client="txbroker-bench", timeout=plan.timeout, linger=plan.linger, batch_bytes=plan.batch_bytes
        )
        readers = plan.kind is Kind.LATENCY
        clients = [Client(parse(plan.url), options, plan.phases) for _ in range(share.clients + readers)]
        self._orders = orders
        self._share = share
        self._connections = Connections(clients)
        self._connections.watch(0, self._heard)
        self._load = LOADS[plan.kind](share, clients, self._connections)
        self._start_at: float | None = None

    def _heard(self) -> None:
        self._orders.read()
        for line in self._orders.lines:
            word, _, at = line.decode().partition(" ")
            if word == "start":
                self._start_at = float(at)
            elif word == "stop":
                self._load.stopped = True
        self._orders.lines.clear()
        if self._orders.ended:
            self._load.stopped = True
            self._connections.unwatch(0)

    def work(self) -> None:
        """Do all of the work. Raises what makes it impossible."""
        load, timeout = self._load, self._share.plan.timeout
        deadline = time.monotonic() + timeout
        if not run_until(self._connections, lambda: load.stopped or load.prepare(), deadline):
            reasons = {client.core.reason for client in load.clients if not client.core.session}
            why = f": {', '.join(sorted(reasons))}" if reasons else ""
            say(Said(failed=f"not all clients were ready within {timeout:g} s{why}"))
            return
        say(Said(ready=True))
        run_until(self._connections, lambda: load.stopped or self._start_at is not None)
        if self._start_at is None:
            return
        self._measure(self._start_at)

    def _measure(self, at: float) -> None:
        load = self._load
        run_until(self._connections, lambda: load.stopped or time.monotonic() >= at, at)
        load.begin(at)
        tell_at, give_up_at = at, float("inf")
        used_at_begin: tuple[float, float] | None = None
        while not load.is_idle():
            now = time.monotonic()
            if used_at_begin is None and now >= load.tally.begin:
                used_at_begin = now, time.process_time()
            if load.is_over() and give_up_at == float("inf"):
                give_up_at = now + self._share.plan.timeout
            if now >= give_up_at:
                break
            if now >= tell_at:
                tell_at = now + PROGRESS_EVERY
                say(Said(progress=load.tally.progress()))
            load.turn(min(tell_at, give_up_at))
        since, used = used_at_begin or (time.monotonic(), time.process_time())
        busy = (time.process_time() - used) / max(time.monotonic() - since, 1e-9)
        say(Said(counted=load.tally.counted(load.sent(), busy)))

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()


def say(what: Said) -> None:
    """Write one line to standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


def run() -> None:
    """Read the share and carry it out."""
    orders = Orders()
    os.set_blocking(0, True)
    while not orders.lines and not orders.ended:
        orders.read()
    os.set_blocking(0, False)
    if not orders.lines:
        return
    share = msgspec.json.decode(orders.lines.pop(0), type=Share)
    keep_time()
    with quieted("txbroker.client"):  # warnings of the client are counted here, as errors
        worker = Worker(share, orders)
        try:
            worker.work()
        except TxBrokerError as error:
            say(Said(failed=f"{type(error).__name__}: {error}"))
        except BrokenPipeError:
            os._exit(1)  # the process that asked for the figures has ended: nothing is left to report to
        finally:
            worker.close()


if __name__ == "__main__":
    run()
