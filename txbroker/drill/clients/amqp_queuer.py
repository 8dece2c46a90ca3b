"""The role ``amqp`` does over AMQP 0-9-1 what a queuer does: it publishes with confirms, and takes messages.

It acknowledges them in transactions of the channel: ``tx.commit`` is answered, once all is forced.
"""

from __future__ import annotations

from typing import Final

from txbroker.amqp import connection_methods as connecting
from txbroker.amqp import methods
from txbroker.amqp import properties as props
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.fields import Table, encode_table
from txbroker.amqp.properties import DELIVERY_MODE, HEADERS, PERSISTENT
from txbroker.amqp.reply_codes import Reply
from txbroker.drill.clients.amqp_connection import AmqpConnection, AmqpLost, AmqpRefused, Arrival
from txbroker.drill.clients.ledger import Acknowledged, Began, Delivered, How, Refused, Settled, Settles, Took
from txbroker.drill.clients.life import Life
from txbroker.drill.clients.messages import identity_of, value_of
from txbroker.drill.clients.queuer import AT_ONCE, BATCHES, WAIT, address_of
from txbroker.drill.plan.plan import FANOUT, FOLLOW_UPS, LEFT, RIGHT, WAYS

PUBLISHING_CHANNEL, TAKING_CHANNEL = 1, 2
PREFETCH: Final = 20
PUBLISHING: Final = 0.3
"""The share of messages published among what it does; otherwise it takes some."""
SETTLING: Final = {How.ACKNOWLEDGE: 0.7, How.RETURN: 0.2, How.GIVE_UP: 0.05, None: 0.05}
"""How often it settles in these ways what it has taken; None is for closing the connection with it."""


def queue_up_over_amqp(life: Life) -> None:
    """Run the role ``amqp``; a connection that has failed is dropped with all that it had taken."""
    while life.goes_on():
        try:
            connection = AmqpConnection(life.plan.amqp_port, life.plan.timeout)
        except AmqpLost:
            life.pause()
            continue
        life.connections += 1
        try:
            queuer = AmqpQueuer(life, connection)
            while life.goes_on() and queuer.step():
                pass
        except AmqpLost:
            pass  # what was asked for and not answered is unknown, as the ledger has it
        finally:
            connection.close()
        life.pause()


class AmqpQueuer:
    """Such a client with its connection, which has a channel for each direction."""

    def __init__(self, life: Life, connection: AmqpConnection) -> None:
        self._life, self._connection = life, connection
        for channel in (PUBLISHING_CHANNEL, TAKING_CHANNEL):
            connection.ask(channel, connecting.ChannelOpen(), connecting.ChannelOpenOk)
        connection.ask(PUBLISHING_CHANNEL, methods.ConfirmSelect(False), methods.ConfirmSelectOk)
        connection.ask(TAKING_CHANNEL, methods.BasicQos(0, PREFETCH, False), methods.BasicQosOk)
        connection.ask(TAKING_CHANNEL, methods.TxSelect(), methods.TxSelectOk)
        for queue in (LEFT, RIGHT, FOLLOW_UPS):
            consume = methods.BasicConsume(0, life.plan.queue(queue), queue, False, False, False, False, {})
            connection.ask(TAKING_CHANNEL, consume, methods.BasicConsumeOk)
        self._published = 0
        """The number of the last message on the channel, by which it is confirmed."""

    def step(self) -> bool:
        """Do one thing; returns whether the connection may be used again."""
        if self._life.chance.random() < PUBLISHING:
            return self._publish()
        taken = self._take()
        return self._settle(taken) if taken else True

    # -- publishing --------------------------------------------------------------------------------

    def _publish(self) -> bool:
        """Publish messages, and wait for all confirms; returns whether all are stored."""
        life, operation, first = self._life, self._life.next_operation(), self._published + 1
        count = life.chance.choice(BATCHES)
        life.ledger.write(
            Began(operation=operation, places=[], connection=life.connections, published=[FANOUT] * count)
        )
        exchange, key = address_of(life.plan, FANOUT, life.sender)
        given = {HEADERS: encode_table({"way": FANOUT}), DELIVERY_MODE: PERSISTENT}
        properties = props.replaced(props.NONE, {}, given)
        for number in range(count):
            self._published += 1
            value = value_of(life.identity(operation, number, 1))
            self._connection.publish(PUBLISHING_CHANNEL, exchange, key, properties, value)
        left, is_stored = set(range(first, first + count)), True
        while left:
            told = self._confirmed()
            tags = {
                tag for tag in left if tag == told.delivery_tag or (told.multiple and tag < told.delivery_tag)
            }
            left -= tags
            numbers = sorted(tag - first for tag in tags)
            if isinstance(told, methods.BasicAck):
                offsets = [(number, -1) for number in numbers]
                life.ledger.write(Acknowledged(operation=operation, offsets=offsets))
            else:
                life.ledger.write(Refused(operation=operation, indexes=numbers, error="basic.nack"))
                is_stored = False
        life.pace(count)
        return is_stored

    def _confirmed(self) -> methods.BasicAck | methods.BasicNack:
        def confirms(method: Method) -> bool:
            return isinstance(method, (methods.BasicAck, methods.BasicNack))

        found = self._connection.next(PUBLISHING_CHANNEL, confirms, self._life.plan.timeout)
        if found is None:
            raise AmqpLost("no confirm in time")
        assert isinstance(found.method, (methods.BasicAck, methods.BasicNack))
        return found.method

    # -- taking ------------------------------------------------------------------------------------

    def _take(self) -> list[tuple[str, int, Delivered]]:
        """Take some of what comes, each with its queue and its tag; all is in the ledger before anything is done."""
        taken, wanted = list[tuple[str, int, Delivered]](), self._life.chance.choice(AT_ONCE)
        while len(taken) < wanted:
            arrival = self._connection.next(
                TAKING_CHANNEL, lambda method: isinstance(method, methods.BasicDeliver), WAIT
            )
            if arrival is None:
                break
            assert isinstance(arrival.method, methods.BasicDeliver)
            taken.append((arrival.method.consumer_tag, arrival.method.delivery_tag, self._delivered(arrival)))
        for queue in dict.fromkeys(queue for queue, *_ in taken):
            messages = [delivered for where, _, delivered in taken if where == queue]
            self._life.ledger.write(Took(queue=queue, messages=messages))
        return taken

    def _delivered(self, arrival: Arrival) -> Delivered:
        method = arrival.method
        assert isinstance(method, methods.BasicDeliver)
        identity, headers = identity_of(arrival.body), headers_in(arrival.properties)
        which = None if identity is None else (identity.sender, identity.operation, identity.number)
        way = str(headers.get("way", ""))
        intact = (
            identity is not None
            and way in WAYS
            and arrival.body == value_of(identity)
            and method.routing_key == address_of(self._life.plan, way, identity.sender)[1]
        )
        return Delivered(-1, which, intact, int(str(headers.get("x-delivery-count", 0))), method.redelivered)

    def _settle(self, taken: list[tuple[str, int, Delivered]]) -> bool:
        """Acknowledge or return what was taken, or close the connection with it; returns whether that goes on.

        One transaction settles all; each queue has its line in the ledger.
        """
        life = self._life
        how = life.chance.choices(list(SETTLING), list(SETTLING.values()))[0]
        if how is None:
            return False
        operations, several = list[int](), list[Method]()
        for queue in dict.fromkeys(queue for queue, *_ in taken):
            which = [each.message for where, _, each in taken if where == queue and each.message is not None]
            way = How.ACKNOWLEDGE if queue == FOLLOW_UPS else how  # those go nowhere if they are given up
            operations.append(life.next_operation())
            life.ledger.write(
                Settles(operation=operations[-1], queue=queue, offsets=[], how=way, messages=which)
            )
            several += [
                methods.BasicAck(tag, False)
                if way is How.ACKNOWLEDGE
                else methods.BasicNack(tag, False, way is How.RETURN)
                for where, tag, _ in taken
                if where == queue
            ]
        self._connection.tell(TAKING_CHANNEL, *several)
        try:
            self._connection.ask(TAKING_CHANNEL, methods.TxCommit(), methods.TxCommitOk)
        except AmqpRefused as error:
            is_lost = error.code == Reply.PRECONDITION_FAILED
            for operation in operations if is_lost else ():
                life.ledger.write(Settled(operation=operation, lost=True))
            if not is_lost:
                life.surprised("settling messages over AMQP", error)
            return False
        for operation in operations:
            life.ledger.write(Settled(operation=operation))
        life.pace(len(taken))
        return True


def headers_in(properties: bytes) -> Table:
    """Return the headers among properties."""
    return props.headers_of(properties, props.spans_of(properties))
