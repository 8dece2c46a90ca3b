"""The roles that send: ``sender`` survives lost connections, ``plain`` makes a new connection after each loss."""

from __future__ import annotations

from collections.abc import Iterator

import txbroker
from txbroker.client.blocking.send_future import SendFuture
from txbroker.drill.clients.ledger import Acknowledged, Began, Refused, Unknown
from txbroker.drill.clients.life import EXPECTED, LOST, Life, text_of
from txbroker.drill.clients.messages import value_of
from txbroker.drill.plan.plan import WRITTEN
from txbroker.errors import OutcomeUnknown, TxBrokerError

BATCHES = (1, 1, 5, 20, 60, 200)
"""How many messages are sent before the client waits for the first answer."""


def send_on(life: Life) -> None:
    """Run the role ``sender``: one connection for the whole life; the client asks again for lost answers."""
    connection = life.connect()
    while life.goes_on():
        if not send_batch(life, connection):
            life.pause()
    life.drop(connection)


def send_plainly(life: Life) -> None:
    """Run the role ``plain``: a lost connection leaves unanswered sends unknown, and a new connection is made."""
    while life.goes_on():
        connection = life.connect(reconnect=False)
        while life.goes_on() and send_batch(life, connection):
            pass
        life.drop(connection)


def send_batch(life: Life, connection: txbroker.Connection) -> bool:
    """Send one batch to the topics of senders; returns whether all messages are stored."""
    chance = life.chance
    places = chance.choices(life.plan.places(*WRITTEN), k=chance.choice(BATCHES))
    began = Began(operation=life.next_operation(), places=places, connection=life.connections)
    return send_messages(life, connection, began)


def send_messages(life: Life, connection: txbroker.Connection, began: Began) -> bool:
    """Send pipelined messages and note all answers. Returns whether all messages are stored."""
    ledger, operation, places = life.ledger, began.operation, began.places
    ledger.write(began)
    futures: list[SendFuture] = []
    try:
        for index, place in enumerate(places):
            topic, partition = life.plan.layout[place]
            value = value_of(life.identity(operation, index, 1))
            labels = began.key(index, life.sender), {"place": b"%d" % place}
            futures.append(connection.send_async(topic, value, *labels, partition=partition))
    except EXPECTED as error:
        refused = list(range(len(futures), len(places)))
        ledger.write(Refused(operation=operation, indexes=refused, error=text_of(error)))
    stored = put_down_answers(life, operation, futures)
    life.pace(len(places))
    return stored == len(places)


def put_down_answers(life: Life, operation: int, futures: list[SendFuture]) -> int:
    """Wait for all answers; each is in the ledger as soon as it arrives. Returns how many messages are stored."""
    stored = 0
    for first, end in _answered(futures):
        offsets: list[tuple[int, int]] = []
        for index in range(first, end):
            try:
                offset = futures[index].result().offset
            except TxBrokerError as error:
                _put_down_failure(life, operation, index, error)
            else:
                assert offset is not None, "outside of transactions receipts have offsets"
                offsets.append((index, offset))
        if offsets:
            life.ledger.write(Acknowledged(operation=operation, offsets=offsets))
            stored += len(offsets)
    return stored


def _put_down_failure(life: Life, operation: int, index: int, error: TxBrokerError) -> None:
    if isinstance(error, OutcomeUnknown):
        life.ledger.write(Unknown(operation=operation, indexes=[index], error=text_of(error)))
        return
    life.ledger.write(Refused(operation=operation, indexes=[index], error=text_of(error)))
    if not isinstance(error, LOST):
        life.surprised(f"operation {operation}, sending message {index}", error)


def _answered(futures: list[SendFuture]) -> Iterator[tuple[int, int]]:
    """Yield runs of futures whose answers have arrived; waits for the first of each run."""
    first = 0
    while first < len(futures):
        futures[first].exception()
        end = first + 1
        while end < len(futures) and futures[end].done():
            end += 1
        yield first, end
        first = end
