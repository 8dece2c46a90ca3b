"""The load of transactions, in one phase or two, each timed from when it was to begin to the answer to its commit."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from txbroker.bench.connections import Client, Connections
from txbroker.bench.load import Load, Messages
from txbroker.bench.plan import MICROS, Share
from txbroker.client.core.promise import Promise, start
from txbroker.client.transactions.transaction import Transaction
from txbroker.client.transactions.two_phase import xid_of
from txbroker.errors import TxBrokerError

FORMAT_ID = 0x6265
"""The format of the xids: "be". It tells transactions that a killed bench has left from others."""


class Transacting(Load):
    """Clients that run transactions of ``messages`` messages for ``touched`` partitions."""

    def __init__(self, share: Share, clients: list[Client], connections: Connections) -> None:
        super().__init__(share, clients, connections)
        self._messages = [Messages(self.plan, share.first + number) for number in range(len(clients))]
        self._asked = False
        self._begun = 0

    def prepare(self) -> bool:
        """Return whether every client knows the topic."""
        if not self._asked:
            self._asked = True
            self.fetch_routes()
        return self.have_routes()

    def operate(self, client: int, wanted: float) -> None:
        """Begin a transaction."""
        self.under_way += 1
        start(self._run(client, wanted)).then(lambda: self._over(client))

    def _over(self, client: int) -> None:
        self.under_way -= 1
        self.next(client)

    async def _run(self, client: int, wanted: float) -> None:
        plan, of, messages = self.plan, self.clients[client], self._messages[client]
        self._begun += 1
        first = messages.made
        name = b"%d-%d-%d" % (plan.run, self.share.first + client, first)
        xid = xid_of(FORMAT_ID, name, b"bench") if plan.two_phase else None
        transaction = Transaction(of.core, of.producer, of.serials, xid)
        try:
            await self._fill(transaction, client, wanted)
            since = wanted
            if plan.two_phase:
                since = await self._step(of, "prepare", transaction.prepare(), since, wanted)
            await self._step(of, "commit", transaction.commit(), since, wanted)
        except TxBrokerError as error:
            self.tally.failed(wanted, error)
            self.tally.unacknowledged.append((self.share.first + client, first, messages.made))
            with suppress(TxBrokerError):  # its messages have been counted
                await transaction.rollback()
            return
        self.tally.operations((wanted,), time.monotonic(), plan.messages, plan.messages * plan.size)

    async def _fill(self, transaction: Transaction, client: int, wanted: float) -> None:
        plan, messages, number = self.plan, self._messages[client], self._begun
        route = await transaction.ready(plan.topic)
        for place in range(plan.messages):
            _, value = messages.make(wanted)
            queue = route.queues[(number + place % plan.touched) % len(route.queues)]
            transaction.contents.append(queue, value, time.time_ns() // 1000, messages.key(), None)

    async def _step(
        self, of: Client, what: str, step: Coroutine[Promise[Any], None, None], since: float, wanted: float
    ) -> float:
        """Carry out a prepare or commit that could begin at ``since``; return when it was answered."""
        of.core.newest = 0
        promise = start(step)
        correlation = of.core.newest  # the request has been sent by now, if there is a connection
        await promise
        now = time.monotonic()
        trip = of.core.trip(correlation)
        if trip is not None and wanted >= self.tally.begin:
            queued = int((trip.posted - since) * MICROS)
            self.tally.phases_of(what).record(queued, trip.round_trip, trip.times)
        return now

    def sent(self) -> dict[int, int]:
        """Return how many messages each client has sent."""
        return {self.share.first + number: made.made for number, made in enumerate(self._messages)}
