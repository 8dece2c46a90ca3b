"""The common part of all loads: clients that begin operations, in an open or a closed loop, and their counts."""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from txbroker.bench import keys
from txbroker.bench.connections import Client, Connections
from txbroker.bench.plan import HEADER, MICROS, Plan, Share
from txbroker.bench.schedule import Schedule
from txbroker.bench.tally import Tally
from txbroker.client.core.promise import start

FILLING_SEED = 7


class Load(ABC):
    """The clients of one process at work: :meth:`prepare`, :meth:`begin` at the common time, then :meth:`turn`.

    An operation that begins from ``tally.begin`` on is measured; earlier ones were the warm-up. No operation begins
    later than ``plan.seconds`` after that, or beyond ``count`` operations; :meth:`is_idle` then says when all are over.
    """

    def __init__(self, share: Share, clients: list[Client], connections: Connections) -> None:
        self.share = share
        self.plan: Plan = share.plan
        self.clients = clients
        self.connections = connections
        self.tally = Tally(math.inf)
        self.under_way = 0
        self.stopped = False
        self._measured = 0
        self._end = math.inf
        self._schedule: Schedule | None = None

    # -- what loads differ in ----------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> bool:
        """Return whether all is ready; it is called until it is."""

    @abstractmethod
    def operate(self, client: int, wanted: float) -> None:
        """Begin an operation of this client that was to begin at ``wanted``."""

    def sent(self) -> dict[int, int]:
        """Return how many messages each client began to send, by its number among all."""
        return {}

    # -- what they share ---------------------------------------------------------------------------

    def begin(self, at: float) -> None:
        """Start with the warm-up at ``at``, of the monotonic clock."""
        plan = self.plan
        self.tally.begin = at + plan.warm_up
        if plan.seconds is not None:
            self._end = self.tally.begin + plan.seconds
        if plan.rate:
            self._schedule = Schedule(at, plan.rate, self.share.first, len(self.clients), plan.clients)
        else:
            for client in range(len(self.clients)):
                for _ in range(plan.depth):
                    self.next(client)

    def has_enough(self) -> bool:
        """Return whether the load was told to stop, or has begun as many operations as are wanted."""
        count = self.share.count
        return self.stopped or (count is not None and self._measured >= count)

    def is_over(self) -> bool:
        """Return whether no operation may begin any more. One that was to begin in time may begin late."""
        now = time.monotonic() if self._schedule is None else self._schedule.next_at
        return self.has_enough() or now >= self._end

    def is_idle(self) -> bool:
        """Return whether all operations that began are over."""
        return self.is_over() and not self.under_way

    def turn(self, until: float) -> None:
        """Begin what is due, then run a turn of the connections."""
        schedule = self._schedule
        if schedule is not None and not self.is_over():
            for client, wanted in schedule.due(time.monotonic()):
                if wanted >= self._end:
                    break
                self._count(wanted)
                self.operate(client, wanted)
                if self.has_enough():
                    break
            for each in self.clients:
                if each.core.output_bytes:
                    self.connections.flush(each)
            until = min(until, schedule.next_at)
        self.connections.turn(until)

    def next(self, client: int) -> None:
        """Begin the next operation of a client in a closed loop, after one is over."""
        if self._schedule is None and not self.is_over():
            now = time.monotonic()
            self._count(now)
            self.operate(client, now)

    def _count(self, wanted: float) -> None:
        if wanted >= self.tally.begin:
            self._measured += 1

    def all_ready(self, ready: Callable[[Client], bool]) -> bool:
        """Return whether every client is ready; clients report by themselves that there is no broker."""
        for client in self.clients:
            client.core.check_open()
        return all(ready(client) for client in self.clients)

    def fetch_routes(self) -> None:
        """Have every client look up the topic."""
        for client in self.clients:
            start(client.producer.route(self.plan.topic))

    def have_routes(self) -> bool:
        """Return whether all clients have found the topic."""
        return self.all_ready(lambda client: client.producer.known_route(self.plan.topic) is not None)


class Messages:
    """The messages of one client: numbered, each with the time at which it was to be sent."""

    def __init__(self, plan: Plan, client: int) -> None:
        self.made = 0
        self._run = plan.run
        self._client = client
        self._filling = random.Random(FILLING_SEED).randbytes(plan.size - HEADER.size)
        self.key = keys.chooser(plan.keys, plan.run + client)

    def make(self, wanted: float) -> tuple[int, bytes]:
        """Return the number and value of the next message."""
        number = self.made
        self.made = number + 1
        return number, HEADER.pack(self._run, self._client, number, int(wanted * MICROS)) + self._filling
