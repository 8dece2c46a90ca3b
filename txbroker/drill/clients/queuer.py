"""The role ``queuer`` publishes to queues and takes from them, acknowledges and returns, alone and in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import txbroker
from txbroker.amqp import properties as props
from txbroker.client.blocking.queue import Queue
from txbroker.client.blocking.send_future import SendFuture
from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import Began, Delivered, How, Refused, Settled, Settles, Took
from txbroker.drill.clients.life import EXPECTED, Life, text_of
from txbroker.drill.clients.messages import MessageId, identity_of, value_of
from txbroker.drill.clients.senders import put_down_answers
from txbroker.drill.clients.transactor import ROLLED_BACK, Carrying, Published, Work
from txbroker.drill.plan.plan import (
    DEAD_LETTERS,
    DELIVERY_LIMIT,
    FANOUT,
    FOLLOW_UPS,
    LEFT,
    RIGHT,
    WAYS,
    Plan,
)
from txbroker.errors import DeliveryLost, TxBrokerError
from txbroker.wire.queues import AMQP_PROPERTIES, EXCHANGE

BATCHES: Final = (1, 1, 5, 20)
"""How many messages are published before the client waits for the first answer."""

PREFETCH: Final = (1, 5, 20)
"""How many messages a reader takes at a time."""

AT_ONCE: Final = (1, 2, 5, 10)
"""How many messages are taken before they are settled."""

WAIT: Final = 0.05
"""Seconds that the client waits for a message."""

PUBLISHING: Final = 0.25
PUBLISHING_TOGETHER: Final = 0.1
"""Shares of what it does: messages published, alone and in transactions. Otherwise it takes some, of which it settles
so many shares in these ways; the rest it leaves, and closes its reader.
"""
SETTLING: Final = {How.ACKNOWLEDGE: 0.35, How.RETURN: 0.15, How.GIVE_UP: 0.03}
WITH_FOLLOW_UPS: Final = 0.42

PAUSES: Final = (None, None, 0.1, 0.5)
"""Seconds after which a message that is returned comes again."""


def declare_queues(connection: txbroker.Connection, plan: Plan) -> None:
    """Make the queues of a drill, and the exchange that leads to two of them."""
    for short in (FOLLOW_UPS, DEAD_LETTERS):
        connection.declare_queue(plan.queue(short))
    connection.declare_exchange(plan.queue(FANOUT), "fanout")
    for short in (LEFT, RIGHT):
        connection.declare_queue(
            plan.queue(short),
            delivery_limit=DELIVERY_LIMIT,
            dead_letter_exchange="",
            dead_letter_key=plan.queue(DEAD_LETTERS),
        )
        connection.bind(plan.queue(FANOUT), plan.queue(short))


def address_of(plan: Plan, way: str, sender: str) -> tuple[str, str]:
    """Return the exchange and the routing key by which a message goes a way."""
    return (plan.queue(FANOUT), sender) if way == FANOUT else ("", plan.queue(way))


def is_as_published(plan: Plan, message: Message, identity: MessageId, key: str | None = None) -> bool:
    """Return whether a message is what its sender has published, to the last byte.

    With ``key`` it is a dead letter: that has taken the place of its own key, and it has further headers.
    """
    properties = message.header(AMQP_PROPERTIES)
    if properties is None:
        way, own_headers = (message.header("way") or b"").decode("ascii", "replace"), 1
        is_labelled = message.headers[:1] == (("way", way.encode()),)
    else:  # it was published over AMQP
        table, own_headers = props.headers_of(properties, props.spans_of(properties)), 2
        way = str(table.get("way", ""))
        exchange = "" if key else address_of(plan, way, identity.sender)[0]
        is_labelled = (message.header(EXCHANGE) or b"") == exchange.encode()
    own = key or address_of(plan, way, identity.sender)[1]
    return (
        way in WAYS
        and is_labelled
        and message.value == value_of(identity)
        and message.key == own.encode()
        and (len(message.headers) == own_headers) == (key is None)
    )


def queue_up(life: Life) -> None:
    """Run the role ``queuer``; a connection that has failed is dropped with all that it had taken."""
    while life.goes_on():
        connection = life.connect()
        queuer = Queuer(life, connection)
        while life.goes_on() and queuer.step():
            pass
        life.drop(connection)
        life.pause()


class Queuer:
    """A queuer with its connection."""

    def __init__(self, life: Life, connection: txbroker.Connection) -> None:
        self._life = life
        self._connection = connection
        self._readers: dict[str, Queue] = {}

    def step(self) -> bool:
        """Do one thing; returns whether the connection may be used again."""
        drawn = self._life.chance.random()
        if drawn < PUBLISHING:
            return self._publish()
        if drawn < PUBLISHING + PUBLISHING_TOGETHER:
            return self._carry(FANOUT, self._life.chance.choice((1, 2, 5)))
        queue = self._life.chance.choice((LEFT, LEFT, RIGHT, RIGHT, FOLLOW_UPS))
        try:
            taken = self._take(queue)
        except EXPECTED:
            return False
        return self._settle(queue, taken) if taken else True

    # -- publishing --------------------------------------------------------------------------------

    def _publish(self) -> bool:
        """Publish messages one by one, without waiting for each; returns whether all are stored."""
        life, operation = self._life, self._life.next_operation()
        count = life.chance.choice(BATCHES)
        life.ledger.write(
            Began(operation=operation, places=[], connection=life.connections, published=[FANOUT] * count)
        )
        exchange, key = address_of(life.plan, FANOUT, life.sender)
        futures: list[SendFuture] = []
        try:
            for number in range(count):
                value, headers = value_of(life.identity(operation, number, 1)), {"way": FANOUT.encode()}
                futures.append(
                    self._connection.send_async(f"exchange:{exchange}", value, key.encode(), headers)
                )
        except EXPECTED as error:
            refused = list(range(len(futures), count))
            life.ledger.write(Refused(operation=operation, indexes=refused, error=text_of(error)))
        stored = put_down_answers(life, operation, futures)
        life.pace(count)
        return stored == count

    def _carry(self, way: str, count: int, queue: str = "", acknowledged: Sequence[Message] = ()) -> bool:
        """Carry out a transaction that publishes, and may acknowledge messages of a queue."""
        life, operation = self._life, self._life.next_operation()
        exchange, key = address_of(life.plan, way, life.sender)
        made = [life.identity(operation, number, count) for number in range(count)]
        work = Work(
            operation,
            [],
            [],
            life.chance.random() < life.plan.two_phase,
            life.chance.random() >= ROLLED_BACK,
            published=[Published(way, exchange, key, each) for each in made],
            queue=queue,
            acknowledged=list(acknowledged),
        )
        goes_on = Carrying(life, self._connection, work).run()
        life.pace(count)
        return goes_on

    # -- taking ------------------------------------------------------------------------------------

    def _take(self, queue: str) -> list[Message]:
        """Take some messages; they are in the ledger before anything is done with them."""
        life = self._life
        reader = self._readers.get(queue)
        if reader is None:
            reader = self._connection.queue(life.plan.queue(queue), prefetch=life.chance.choice(PREFETCH))
            self._readers[queue] = reader
        taken, wanted = list[Message](), life.chance.choice(AT_ONCE)
        while len(taken) < wanted and (message := reader.get(WAIT)) is not None:
            taken.append(message)
        if taken:
            life.ledger.write(Took(queue=queue, messages=[self._delivered(each) for each in taken]))
        return taken

    def _delivered(self, message: Message) -> Delivered:
        identity = identity_of(message.value)
        which = None if identity is None else (identity.sender, identity.operation, identity.number)
        intact = identity is not None and is_as_published(self._life.plan, message, identity)
        return Delivered(message.offset, which, intact, message.attempts, message.redelivered)

    def _settle(self, queue: str, taken: list[Message]) -> bool:
        """Acknowledge or return what was taken, or leave it; returns whether the connection may be used again."""
        chance = self._life.chance
        drawn = chance.random()
        if queue == FOLLOW_UPS:
            return self._settle_plainly(queue, taken, How.ACKNOWLEDGE)
        if drawn < WITH_FOLLOW_UPS:
            return self._carry(FOLLOW_UPS, chance.choice((1, 2)), queue, taken)
        drawn -= WITH_FOLLOW_UPS
        for how, share in SETTLING.items():
            if drawn < share:
                return self._settle_plainly(queue, taken, how)
            drawn -= share
        self._readers.pop(queue).close(failed=chance.random() < 0.5)
        return True

    def _settle_plainly(self, queue: str, taken: list[Message], how: How) -> bool:
        """Settle messages of a queue outside of transactions, and put the answer down; if none comes nobody knows."""
        life, operation, reader = self._life, self._life.next_operation(), self._readers[queue]
        offsets = [each.offset for each in taken]
        life.ledger.write(Settles(operation=operation, queue=queue, offsets=offsets, how=how))
        try:
            match how:
                case How.ACKNOWLEDGE:
                    reader.ack(taken)
                case How.RETURN:
                    reader.nack(taken, after=life.chance.choice(PAUSES), why="on purpose")
                case How.GIVE_UP:
                    reader.nack(taken, requeue=False, why="for good")
        except DeliveryLost:
            life.ledger.write(Settled(operation=operation, lost=True))
            return False
        except EXPECTED:
            return False
        except TxBrokerError as error:
            life.surprised(f"settling messages of queue {queue}, operation {operation}", error)
            return False
        life.ledger.write(Settled(operation=operation))
        life.pace(len(taken))
        return True
