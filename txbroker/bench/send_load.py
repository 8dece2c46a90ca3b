"""Loads that send: batches as the client makes them, each message timed from when it was to be sent."""

from __future__ import annotations

import time
from collections import deque

from txbroker.bench.connections import Client, Connections
from txbroker.bench.load import Load, Messages
from txbroker.bench.plan import MICROS, Share
from txbroker.client.core.promise import start
from txbroker.client.producer.batch import Batch
from txbroker.errors import TxBrokerError, UnknownTopic


class Producing(Load):
    """Clients that send messages, with ``depth`` of each unanswered, or at a rate whatever is unanswered."""

    def __init__(self, share: Share, clients: list[Client], connections: Connections) -> None:
        super().__init__(share, clients, connections)
        self._messages = [Messages(self.plan, share.first + number) for number in range(len(clients))]
        self._flights: dict[Batch, tuple[list[float], list[int]]] = {}
        self._waiting: list[deque[float]] = [deque() for _ in clients]
        self._asked = False

    def prepare(self) -> bool:
        """Return whether every client knows the topic and has a producer's number."""
        if not self._asked:
            self._asked = True
            self.fetch_routes()
        return self.have_routes() and self.all_ready(lambda client: client.producer.ready())

    def operate(self, client: int, wanted: float) -> None:
        """Send a message, or keep it until there is room; its time runs from ``wanted`` on."""
        self.under_way += 1
        producer = self.clients[client].producer
        waiting = self._waiting[client]
        if waiting or producer.full:
            waiting.append(wanted)
            if len(waiting) == 1:
                start(self._send_waiting(client))
        else:
            self._send(client, wanted)

    async def _send_waiting(self, client: int) -> None:
        producer, waiting = self.clients[client].producer, self._waiting[client]
        while waiting:
            turn = producer.room()
            try:
                producer.join_room(turn)
                await turn
                while waiting and not producer.full:
                    self._send(client, waiting.popleft())
            finally:
                producer.leave_room(turn)

    def _send(self, client: int, wanted: float) -> None:
        messages, producer = self._messages[client], self.clients[client].producer
        number, value = messages.make(wanted)
        key = messages.key()
        try:
            route = producer.known_route(self.plan.topic)
            if route is None:
                raise UnknownTopic(f"the topic {self.plan.topic!r} is gone")
            batch, position = route.choose(key, None).append(value, time.time_ns() // 1000, key, None)
        except TxBrokerError as error:  # no more of this client will be accepted
            self.under_way -= 1
            self._lost(client, wanted, number, error)
            self.stopped = True
            return
        if position:
            flight = self._flights[batch]
        else:
            flight = self._flights[batch] = ([], [])
            batch.then(lambda: self._answered(client, batch))
        flight[0].append(wanted)
        flight[1].append(number)

    def _answered(self, client: int, batch: Batch) -> None:
        wanted, numbers = self._flights.pop(batch)
        self.under_way -= len(wanted)
        if batch.error is None:
            self.tally.operations(wanted, time.monotonic(), 1, self.plan.size)
            trip = self.clients[client].core.trip(batch.request.correlation)
            if trip is not None and wanted[0] >= self.tally.begin:
                queued = int((trip.posted - wanted[0]) * MICROS)
                self.tally.phases_of("send").record(queued, trip.round_trip, trip.times)
        else:
            for at, number in zip(wanted, numbers, strict=True):
                self._lost(client, at, number, batch.error)
        for _ in wanted:
            self.next(client)

    def _lost(self, client: int, wanted: float, number: int, error: BaseException) -> None:
        self.tally.failed(wanted, error)
        self.tally.unacknowledged.append((self.share.first + client, number, number + 1))

    def sent(self) -> dict[int, int]:
        """Return how many messages each client has sent."""
        return {self.share.first + number: made.made for number, made in enumerate(self._messages)}
