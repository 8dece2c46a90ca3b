"""What names mean to clients of AMQP: exchanges, queues, and the channels that replies go to without a queue."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from journal.folds.queues import DeclaredQueue, Exchange
from journal.records.queue_entries import ExchangeSettings, address_of
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.contents import Content
from txbroker.channels.virtual_hosts import OWN_EXCHANGES, REPLY_TO, ROOT_NAME, VirtualHost
from txbroker.errors import QueueFull, QueueInUse, TxBrokerError, UnknownExchange, UnknownQueue, Unroutable

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker
    from txbroker.broker.sessions.session import Session


class Directory:
    """Finds what is named, in the state of just now; raises AmqpError as RabbitMQ does where there is none."""

    def __init__(self, broker: Broker, hosts: Iterable[str] = ()) -> None:
        """``hosts`` are virtual hosts beside the one that is always there: they have their exchanges from now on."""
        self.broker = broker
        self.hosts = {each: VirtualHost(each) for each in (ROOT_NAME, *hosts)}
        self._declarations = broker.queues.declarations
        self._deliveries = broker.queues.takes.deliveries
        self._replies: dict[str, Callable[[Content], None]] = {}
        for name in hosts:
            for exchange, kind in OWN_EXCHANGES.items():
                self._declarations.declare_exchange(
                    self.hosts[name].inside(exchange), ExchangeSettings(kind), None
                )

    def host(self, name: str) -> VirtualHost:
        """Return a virtual host; raises AmqpError, NOT_ALLOWED."""
        if name not in self.hosts:
            raise AmqpError(Reply.NOT_ALLOWED, f"vhost {name} not found")
        return self.hosts[name]

    def exchange(self, name: str, host: VirtualHost) -> Exchange:
        """Return an exchange of a client's host; raises AmqpError, NOT_FOUND."""
        try:
            return self._declarations.exchange(name)
        except UnknownExchange as error:
            raise AmqpError(Reply.NOT_FOUND, f"no exchange {host.shown(name)}") from error

    def queue(self, name: str, session: Session, host: VirtualHost) -> DeclaredQueue:
        """Return a queue of a client's host that the session may use; raises AmqpError: NOT_FOUND, RESOURCE_LOCKED."""
        try:
            found = self._declarations.queue(name)
        except UnknownQueue as error:
            raise AmqpError(Reply.NOT_FOUND, f"no queue {host.shown(name)}") from error
        self._check_owner(found, session, host)
        return found

    def known_exchange(self, name: str) -> Exchange | None:
        """Return an exchange, if it is there."""
        return self._declarations.known_exchange(name)

    def known_queue(self, name: str) -> DeclaredQueue | None:
        """Return a queue, if it is there, whoever has it."""
        return self._declarations.known_queue(name)

    def has_ends(self, source: str, destination: str, to_exchange: bool) -> bool:
        """Return whether both ends of a binding are there."""
        known = self.known_exchange(destination) if to_exchange else self.known_queue(destination)
        return known is not None and self.known_exchange(source) is not None

    def check_not_locked(self, name: str, session: Session, host: VirtualHost) -> None:
        """Raise AmqpError, RESOURCE_LOCKED, if there is such a queue, and it is another connection's."""
        found = self._declarations.known_queue(name)
        if found is not None:
            self._check_owner(found, session, host)

    def _check_owner(self, queue: DeclaredQueue, session: Session, host: VirtualHost) -> None:
        try:
            self.broker.queues.check_owner(queue, session)
        except QueueInUse as error:
            raise AmqpError(
                Reply.RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked queue {host.shown(queue.name)}",
            ) from error

    def ready(self, partition: int) -> int:
        """Return how many messages of a queue can be got; 0 if it has gone."""
        state = self._deliveries.at(partition)
        return 0 if state is None else state.whole.count_ready(self.broker.engine.now())

    def accepted(self, partition: int) -> int:
        """Return how many messages of a queue could be got if everything that was accepted were there."""
        state = self._deliveries.at(partition)
        return 0 if state is None else state.whole.count_accepted(self.broker.engine.now())

    def has_consumers(self, partition: int) -> bool:
        """Return whether somebody consumes a queue."""
        return self.broker.queues.takes.consumers.count(partition) > 0

    def keep_place(self, session: Session, consumer: int) -> None:
        """Let a consumer come before those of lower priority until it says that it has enough."""
        self.broker.queues.takes.consumers.keep_place(session, consumer)

    def has_enough(self, session: Session, consumer: int) -> None:
        """Say that a consumer may have no more messages for now."""
        self.broker.queues.takes.consumers.has_enough(session, consumer)

    def attempts(self, partition: int, offset: int) -> int:
        """Return how often a message was returned."""
        state = self._deliveries.at(partition)
        return 0 if state is None else state.attempts(offset)

    def has_way(self, exchange: int, frame: bytes) -> bool:
        """Return whether an exchange finds a queue for a message; also if it would be refused for something else."""
        try:
            self.broker.queues.publishing.routed(address_of(exchange, mandatory=True), frame)
        except Unroutable:
            return False
        except TxBrokerError:
            return True
        return True

    def lease(self, session: Session, partition: int, offset: int, on_taken: Callable[[], object]) -> bytes:
        """Return a lease for a delivery of a session."""
        return self.broker.queues.leases.grant(session, partition, offset, on_taken)

    def end_lease(self, lease: bytes) -> None:
        """End a lease."""
        self.broker.queues.leases.end(lease)

    def refuses(self, address: int, frames: bytes) -> bool:
        """Return whether messages are too many for a queue that they would go to."""
        if not self._declarations.may_refuse:
            return False
        try:
            self.broker.queues.publishing.routed(address, frames)
        except QueueFull:
            return True
        except TxBrokerError:
            return False  # of another thing, which the request will be told
        return False

    def may_lack_room(self, size: int) -> bool:
        """Return whether messages with so many bytes may be refused because the disk is full, or nearly."""
        return self.broker.engine.room_left <= size * len(self._declarations.fold.queues)

    # -- replies without a queue -------------------------------------------------------------------

    def take_replies(self, deliver: Callable[[Content], None]) -> str:
        """Return a new address, which nobody can guess; what is sent to it is delivered."""
        address = f"{REPLY_TO}.{secrets.token_urlsafe(24)}"
        self._replies[address] = deliver
        return address

    def forget_replies(self, address: str) -> None:
        """Deliver nothing more that is sent to an address."""
        self._replies.pop(address, None)

    def replies_to(self, address: str) -> Callable[[Content], None] | None:
        """Return what delivers to an address; None if it is none, or its channel has gone."""
        return self._replies.get(address)
