"""The role ``relay`` reads one topic, writes another, and commits its position in the same transaction."""

from __future__ import annotations

import txbroker
from txbroker.client.blocking.consumer import Consumer
from txbroker.drill.clients.life import EXPECTED, Life
from txbroker.drill.clients.transactor import ROLLED_BACK, Carrying, Work
from txbroker.drill.plan.plan import SINK, SOURCE

MOST_BYTES = 1 << 16


def relay(life: Life) -> None:
    """Run the role ``relay``: each message of the source gets exactly once into the sink, over all deaths."""
    while life.goes_on():
        connection = life.connect()
        consumer = connection.consume(
            life.plan.topic(SOURCE),
            life.plan.group,
            member="relay",  # which has its partitions again at once after each death
            max_wait=0.5,
            max_bytes=MOST_BYTES,
            prefetch=4 * MOST_BYTES,
        )
        try:
            while life.goes_on() and relay_some(life, connection, consumer):
                pass
        except EXPECTED:  # nothing was read; Carrying itself has noted how a transaction ended
            life.pause()
        life.drop(connection)


def relay_some(life: Life, connection: txbroker.Connection, consumer: Consumer) -> bool:
    """Run one transaction with the messages that came; returns whether to go on from the consumer's position."""
    messages = consumer.poll(0.5)
    if not messages:
        return True
    plan, partition, count = life.plan, messages[0].partition, len(messages)
    operation = life.next_operation()
    place = plan.layout.index((plan.topic(SINK), partition))
    source = plan.layout.index((plan.topic(SOURCE), partition))
    work = Work(
        operation,
        [place] * count,
        [life.identity(operation, index, count) for index in range(count)],
        life.chance.random() < plan.two_phase,
        life.chance.random() >= ROLLED_BACK / 3,
        [(source, messages[0].offset, messages[-1].offset + 1)],
        consumer,
    )
    return Carrying(life, connection, work).run()
