"""Sends, and the producers that give a repeated send the effect of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from journal.constants import MAX_REQUEST_MESSAGES
from journal.folds.producers import ProducersFold
from journal.formats.frame import unstamped, walk
from journal.formats.frame_check import check_run
from journal.records.record import ProducerOpened
from txbroker.broker.sends.producer_room import ProducerRoom
from txbroker.broker.sessions.scheduler import REQUEST
from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import (
    DiskFull,
    InvalidFrame,
    MessageTooLarge,
    RequestRefused,
    SequenceOutOfOrder,
)
from txbroker.wire import messages as commands
from txbroker.wire.messages import OpenProducer, Send, Sent
from txbroker.wire.refusals import check_name, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore


class Sending:
    """The meaning of Send and OpenProducer. ``messages`` and ``bytes`` count what was sent outside transactions."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        producers: ProducersFold,
        sessions: Mapping[int, Session],
    ) -> None:
        self.room = ProducerRoom(engine, settings, producers, sessions)
        self._engine = engine
        self._producers = producers
        self._stores = engine.catalog.stores
        self._append = engine.append
        self._repeated = producers.repeated
        self._max_frame = settings.max_frame
        self.messages = 0
        self.bytes = 0
        self.repeats = 0
        self.publish: Callable[[int, memoryview, int, int, int, int], int] = no_exchange
        """Puts frames into the queues that an exchange finds, and returns the number of the first message."""
        self.check_exchange: Callable[[int], object] = no_exchange
        """Raises unless there is an exchange at that address."""
        self.judge_scheduled: Callable[[Session, Send, MessageStore, memoryview], object] = unheard
        """Raises unless these frames may be sent to that topic of the broker's own, which is the schedule's."""
        self.judge_producer: Callable[[Session], None] = unheard
        """Raises LimitExceeded if the session's principal may have no producer more."""

    def send(self, session: Session, command: Send, data: memoryview) -> Sent:
        """Check the frames and append them; a repeated send is answered as the first time.

        The hot path: 100,000/s. Flat, with everything bound beforehand: 4.4 µs a request through
        ``Broker.received`` with the engine's share, of which ``check_run`` takes 0.9.
        """
        store = self._stores.get(command.partition)
        if store is None:
            if command.partition < 0:
                return self._publish(session, command, data)
            raise unknown_partition(command.partition)
        limit = self._max_frame
        topic = store.settings
        own = topic.max_message_bytes
        try:
            count = check_run(
                data,
                limit if own is None or own > limit else own,
                topic.check_compressed != 0,
                MAX_REQUEST_MESSAGES,
            )
        except (MessageTooLarge, InvalidFrame) as error:
            count = self._repeated_count(session, command, data, error)
        if count > 1:
            session.work += REQUEST * count
        producer_id = command.producer_id
        if producer_id:
            base = self._repeated(
                session.producer_owner, producer_id, command.epoch, command.partition, command.sequence, count
            )  # fmt: skip
            if base is not None:
                check_same(store, base, data, command)
                self.repeats += 1
                return Sent(command.correlation, base)
            if store.internal:
                self.judge_scheduled(session, command, store, data)
            if self._engine.full:
                raise disk_full()
            if not command.sequence:
                self.room.for_pair(session, producer_id)
            base = self._append(store, data, count, producer_id, command.epoch, command.sequence)
        else:
            if store.internal:
                self.judge_scheduled(session, command, store, data)
            if self._engine.full:
                raise disk_full()
            base = self._append(store, data, count)
        self.messages += count
        self.bytes += len(data)
        return Sent(command.correlation, base)

    def _publish(self, session: Session, command: Send, data: memoryview) -> Sent:
        """Send messages through an exchange."""
        address, producer_id = command.partition, command.producer_id
        self.check_exchange(address)  # first: with an exchange its sequences go
        count = check_run(data, self._max_frame, True, MAX_REQUEST_MESSAGES)
        session.work += REQUEST * count
        if producer_id:
            base = self._repeated(
                session.producer_owner, producer_id, command.epoch, address, command.sequence, count
            )
            if base is not None:
                self.repeats += 1
                return Sent(command.correlation, base)
        if self._engine.full:
            raise disk_full()
        if producer_id and not command.sequence:
            self.room.for_pair(session, producer_id)
        base = self.publish(address, data, count, producer_id, command.epoch, command.sequence)
        self.messages += count
        self.bytes += len(data)
        return Sent(command.correlation, base)

    def _repeated_count(
        self, session: Session, command: Send, data: memoryview, error: RequestRefused
    ) -> int:
        """Return how many messages a send repeats that the topic took under former settings; else raise ``error``."""
        if not command.producer_id:
            raise error
        count = check_run(data, self._max_frame, False, MAX_REQUEST_MESSAGES)
        base = self._repeated(
            session.producer_owner, command.producer_id, command.epoch, command.partition, command.sequence, count
        )  # fmt: skip
        if base is None:
            raise error
        return count

    def open_producer(
        self,
        session: Session,
        command: OpenProducer,
        data: memoryview,  # noqa: ARG002
    ) -> commands.ProducerOpened:
        """Give this client an id, or the next epoch of a name; sequences begin at 0 in every epoch."""
        engine, producers = self._engine, self._producers
        if command.name:
            check_name("producer", command.name)
        known = producers.names.get(command.name) if command.name else None
        if known is None:
            if engine.full:
                raise disk_full()
            self.judge_producer(session)
            self.room.for_producer(session)
            number, epoch = producers.next_id, 0
        else:
            number, epoch = known, producers.producers[known].epoch + 1
        record = ProducerOpened(
            number, epoch, command.name, engine.now(), session.producer_owner, session.principal
        )
        engine.accept(record)
        return commands.ProducerOpened(command.correlation, record.producer_id, record.epoch)


def no_exchange(address: int, *_: object) -> int:
    """Raise: there are no exchanges."""
    raise unknown_partition(address)


def check_same(store: MessageStore, base: int, data: memoryview, command: Send) -> None:
    """Raise :class:`SequenceOutOfOrder` if the log holds, from ``base`` on, other frames than a repetition.

    Frames that cannot be had without waiting (retention removed them, they are damaged or only on the disk) are not
    compared.
    """
    place, offset = 0, base
    while place < len(data):
        stored = store.at_hand(offset, len(data) - place)
        if not stored:
            return
        if data[place : place + len(stored)] != unstamped(stored):
            raise SequenceOutOfOrder(
                f"producer {command.producer_id} sends its message {command.sequence} to partition {command.partition} "
                f"again, stored at offset {base}, with another content: the number was used twice. Nothing was stored "
                "again. Read what is there, and send the rest as another producer"
            )
        place += len(stored)
        offset += sum(count for *_, count in walk(stored))


def disk_full() -> DiskFull:
    """Return the error for new work while the disk is nearly full."""
    return DiskFull(
        "free space on the broker's disk is below the low-water mark, new work is refused; nothing has changed. "
        "Reading, deleting, commit and rollback work: make room (free other files, delete topics, or let retention "
        "take more), then try again"
    )


def frame_limit(store: MessageStore, limit: int) -> int:
    """Return the largest frame that a partition takes, where the broker takes ``limit``."""
    own = store.settings.max_message_bytes
    return limit if own is None or own > limit else own
