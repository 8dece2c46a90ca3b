"""Loads that read: consumers read a topic again and again, or follow a load that sends and take the delay."""

from __future__ import annotations

import time

from txbroker.bench.connections import Client, Connections
from txbroker.bench.load import Load
from txbroker.bench.plan import HEADER, MICROS, Share
from txbroker.bench.send_load import Producing
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.core.promise import start
from txbroker.client.core.results import Message
from txbroker.errors import TxBrokerError


class Reading(Load):
    """Clients that read the partitions of a topic from beginning to end, each its own partitions, again and again.

    An operation is a message; the latency is that of the fetches.
    """

    def __init__(self, share: Share, clients: list[Client], connections: Connections) -> None:
        super().__init__(share, clients, connections)
        self._fetched = [0] * len(clients)

    def prepare(self) -> bool:
        """Return whether all clients are connected."""
        return self.all_ready(lambda client: bool(client.core.session))

    def operate(self, client: int, wanted: float) -> None:  # noqa: ARG002
        """Read this client's partitions once; it is a closed loop of depth 1, whatever the plan says."""
        self.under_way += 1
        start(self._pass(client)).then(lambda: self._over(client))

    def _over(self, client: int) -> None:
        self.under_way -= 1
        if not self.tally.errors:
            self.next(client)

    def _count(self, wanted: float) -> None:
        """Count nothing here: messages are counted as they arrive."""

    async def _pass(self, client: int) -> None:
        plan = self.plan
        mine = range(self.share.first + client, plan.partitions, plan.clients)
        options = consumer_options(plan.topic, None, partitions=tuple(mine), start="earliest", follow=False)
        reader = ConsumerCore(self.clients[client].shared_fetch, options, "bench")
        try:
            while not self.is_over() and not reader.finished:
                messages = await _next(reader)
                self._took(client, len(messages), sum(len(each.value or b"") for each in messages))
        except TxBrokerError as error:
            self.tally.failed(time.monotonic(), error)
        finally:
            reader.close()

    def _took(self, client: int, messages: int, size: int) -> None:
        now, tally = time.monotonic(), self.tally
        fetches, self.clients[client].core.fetches = self.clients[client].core.fetches, []
        if now >= tally.begin:
            self._measured += messages
            tally.read(now, messages, size, fetches)


class Following(Producing):
    """A load that sends and follows the topic: it also counts the time from sending a message to reading it."""

    def __init__(self, share: Share, clients: list[Client], connections: Connections) -> None:
        *senders, self._reader_client = clients
        super().__init__(share, senders, connections)
        self._reader: ConsumerCore | None = None

    def prepare(self) -> bool:
        """Begin to follow at the end that the topic has now."""
        if self._reader is None:
            options = consumer_options(self.plan.topic, None, start="latest", max_wait=1.0)
            self._reader = ConsumerCore(self._reader_client.shared_fetch, options, "bench")
            start(self._follow(self._reader))
        return super().prepare() and bool(self._reader.positions)

    async def _follow(self, reader: ConsumerCore) -> None:
        while not reader.finished:
            try:
                messages = await _next(reader)
            except TxBrokerError as error:
                self.tally.errors[type(error).__name__] += 1
                return
            self._arrived([each.value or b"" for each in messages])

    def _arrived(self, values: list[bytes]) -> None:
        now, begin = int(time.monotonic() * MICROS), int(self.tally.begin * MICROS)
        first, beyond = self.share.first, self.share.first + len(self.clients)
        for value in values:
            if len(value) >= HEADER.size:  # others send to the topic, too
                run, client, _, wanted = HEADER.unpack_from(value)
                if run == self.plan.run and first <= client < beyond and wanted >= begin:
                    self.tally.delivered.record(now - wanted)

    def is_idle(self) -> bool:
        """Return whether everything is answered and has been read."""
        tally = self.tally
        return super().is_idle() and (tally.delivered.count >= tally.done or bool(tally.errors))


async def _next(reader: ConsumerCore) -> list[Message]:
    """Wait for messages, and return all that are here of one partition; none at the end."""
    turn = reader.join()
    try:
        await turn
        delivery = reader.look()
        return [] if delivery is None else delivery.some()
    finally:
        turn.leave()
