"""Messages that are to be tried again later: what is said to the broker, and what becomes of them in their consumer.

A message that is tried again is left out of its partition until the broker tells that it is due, and is read then. In
doubt (an interrupt, a lost answer, a transaction whose end is not known) it counts as left out, too: the broker tells
whether it waits. So it may come once more than it must, but never once less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from journal.arguments import NOTHING_SENT, listed, seconds, text, wrong_type, wrong_value
from journal.formats import frame
from journal.records.group_entries import MAX_PAUSE, MAX_SETTLED, PartitionOffset, Retried, Settled
from txbroker import errors
from txbroker.client.consumer.commits import Commits
from txbroker.client.consumer.delivery import Chunk, Delivery
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.consumer.read_ahead import ReadAhead
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Consumed, Joined, Position, place_of, without_group
from txbroker.client.core.results import Message
from txbroker.wire.messages import CommitOffsets, Done

Pause = float | timedelta | None
"""Seconds until a message is tried again; None: as the broker says."""

_PAUSE = "seconds from 0 to 366 days, a timedelta, or None"


class Retry(NamedTuple):
    """A message to be tried again, the position of its consumer, and what is said of it."""

    position: Position
    message: Message
    said: Retried


class Parks(Protocol):
    """A consumer that messages come back to, without I/O."""

    @property
    def core(self) -> Core:
        """The core of its connection."""

    @property
    def options(self) -> ConsumerOptions:
        """Its options."""

    @property
    def positions(self) -> dict[int, Position]:
        """Its positions by number."""

    @property
    def commits(self) -> Commits:
        """Its commits."""

    def park(self, retries: Iterable[Retry]) -> None:
        """Leave these messages out until the broker tells that they are due."""

    def look_again(self) -> None:
        """Ask the broker for what waits now."""


class Parking:
    """Messages of a consumer that are tried again.

    It takes part in a transaction as a receiver does: from the commit on they are left out.
    """

    def __init__(self, group: str, consumer: Parks, retries: Sequence[Retry]) -> None:
        self.group = group
        self._consumer = consumer
        self._retries = retries

    @property
    def settled(self) -> list[Settled]:
        """What is said to the broker."""
        return said_of(self._retries)

    async def carry_out(self) -> None:
        """Have them tried again, outside of a transaction; returns once that is forced."""
        if not self._retries:
            return
        core = self._consumer.core
        self._consumer.park(self._retries)  # first: if this is cut short, the broker tells whether they wait
        try:
            call = core.request(CommitOffsets(core.correlation(), self.group, [], settled=self.settled), Done)
            for each in self._retries:
                each.position.left.asked(each.said.offset, call)
            call.then(self._consumer.look_again)
            await call
        except errors.TxBrokerError as error:
            if not isinstance(error, errors.OutcomeUnknown):
                self._refused()
            raise

    def _refused(self) -> None:
        """Nothing has changed: the messages are handed out, and not finished."""
        for each in self._retries:
            each.position.given.add(each.said.offset)
            each.position.left.taken([each.said.offset])

    def begin(self) -> None:
        """A transaction is to try them again: until its end no commit of what was handed out finishes them."""
        for each in self._retries:
            each.position.finish_singly()
            each.position.retrying.add(each.said.offset)

    def _end(self) -> None:
        for each in self._retries:
            each.position.retrying.discard(each.said.offset)

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return nothing: it was added when the program said it, in the order of what else it says."""
        return [], []

    def settle(self, committed: bool) -> None:
        """The transaction has ended: rolled back, the messages are as before."""
        self._end()
        if committed:
            self._consumer.park(self._retries)
            self._consumer.look_again()

    def discard(self) -> None:
        """Nobody here knows how the transaction ends: the broker tells whether the messages wait."""
        self._end()
        self._consumer.park(self._retries)
        self._consumer.look_again()

    def fenced(self) -> None:
        """The transaction is rolled back: the messages are as before."""


@runtime_checkable
class Retries(Consumed, Protocol):
    """A consumer whose messages a transaction can try again."""

    def retrying(self, message: Message, said: Said) -> Parking:
        """Return what tries this message again."""


class Retrying(Joined, Protocol):
    """A transaction in which messages are tried again."""

    def retry_received(self, message: Message, said: Said) -> bool:
        """Try a message again that the transaction has received; return whether it has."""


def pause_of(after: Any) -> int | None:
    """Return a pause in µs; raises WrongType, WrongValue."""
    if after is None:
        return None
    if isinstance(after, timedelta):
        micros = after // timedelta(microseconds=1)
    elif isinstance(after, bool) or not hasattr(type(after), "__float__"):
        raise wrong_type("after", after, _PAUSE)
    else:
        micros = int(seconds("after", after) * 1e6)
    if not 0 <= micros <= MAX_PAUSE:
        raise wrong_value("after", after, _PAUSE)
    return micros


class Said(NamedTuple):
    """What a program says of messages that come again: the pause in µs, and why; or that they are ``dead``."""

    after: int | None
    why: str
    dead: bool = False

    @classmethod
    def again(cls, after: Pause, why: str) -> Said:
        """Return what is said of messages that are tried again; raises WrongType, WrongValue."""
        return cls(pause_of(after), text("why", why))

    @classmethod
    def given_up(cls, why: str) -> Said:
        """Return what is said of messages that go to the dead letters; raises WrongType."""
        return cls(None, text("why", why), True)

    def of(self, message: Message) -> Retried:
        """Return what is said to the broker of a message."""
        return Retried(message.offset, message.attempts, *self)


def retries_of(positions: Iterable[Position], what: Message | Sequence[Message], said: Said) -> list[Retry]:
    """Return the retries of these messages, for a consumer with these positions.

    Raises WrongType, WrongValue for a message of a partition that the consumer has no position in, and LimitExceeded
    for more messages than are said in one step.
    """
    places = {(each.topic, each.index): each for each in positions}
    if isinstance(what, Message):
        messages: Sequence[Any] = [what]
    else:
        messages = listed("what to try again", what, "messages, or a message")
    if not all(isinstance(each, Message) for each in messages):
        raise wrong_type("what to try again", what, "a message or a list of messages")
    if len(messages) > MAX_SETTLED:
        raise errors.LimitExceeded(
            f"{len(messages)} messages are to be tried again in one step, {MAX_SETTLED} are allowed; {NOTHING_SENT}. "
            "Say it in several steps"
        )
    once = {(each.topic, each.partition, each.offset): each for each in messages}
    return [Retry(place_of(places, each), each, said.of(each)) for each in once.values()]


def said_of(retries: Iterable[Retry]) -> list[Settled]:
    """Return what is said to the broker of these, by partition."""
    found: dict[int, tuple[Position, list[Retried]]] = {}
    for each in retries:
        found.setdefault(each.position.number, (each.position, []))[1].append(each.said)
    return [
        Settled(number, at.generation, min([at.begin, *(one.offset for one in said)]), retried=said)
        for number, (at, said) in found.items()
    ]


def with_retries(settled: Iterable[Settled], retries: Iterable[Retry]) -> list[Settled]:
    """Return these with what is said of retries of the same partitions, and of others."""
    said = {each.partition: each for each in said_of(retries)}
    found = [
        replace(each, retried=said.pop(each.partition).retried) if each.partition in said else each
        for each in settled
    ]
    return [*found, *said.values()]


def parking_of(consumer: Parks, what: Message | Sequence[Message], said: Said) -> Parking:
    """Return what tries these messages again; raises Misuse without a group, and as :func:`retries_of`."""
    if consumer.options.group is None:
        raise without_group()
    retries = retries_of(consumer.commits.known(), what, said)
    consumer.commits.check_messages([each.message for each in retries])
    return Parking(consumer.options.group, consumer, retries)


async def retry(
    consumer: Parks, what: Message | Sequence[Message], said: Said, joined: Joined | None
) -> None:
    """Have messages tried again, in that transaction if there is one; raises as :func:`parking_of`."""
    parking = parking_of(consumer, what, said)
    if joined is None:
        await parking.carry_out()
    else:
        await park_with(joined, parking)


async def retry_in(
    transaction: Retrying,
    reads: Iterable[object],
    message: Message,
    said: Said,
    consumer: Retries | None,
) -> None:
    """Try a message again if a transaction commits: for the group of ``consumer``, else for the one that the
    transaction has received it for, else for that of ``reads``.

    Raises WrongType, WrongValue, and Misuse if no consumer is named and none or several may be meant.
    """
    if not isinstance(message, Message):
        raise wrong_type("what to try again", message, "a message")
    if consumer is None:
        if transaction.retry_received(message, said):
            return
        found = [each for each in reads if isinstance(each, Retries)]
        if len(found) != 1:
            groups = ", ".join(sorted(repr(each.group) for each in found)) or "none"
            raise errors.Misuse(
                f"a message of {message.topic}-{message.partition} is to be tried again or given up, and it is not "
                "said for which consumer: the transaction has not received the message, and those consumers of this "
                f"connection with a group that have handed out messages of that partition have the groups: {groups}; "
                f"{NOTHING_SENT}. Say consumer="
            )
        consumer = found[0]
    elif not isinstance(consumer, Retries):
        raise wrong_type("consumer", consumer, "what consume() gives")
    if not consumer.group:
        raise without_group()
    await park_with(transaction, consumer.retrying(message, said))


async def park_with(transaction: Joined, parking: Parking) -> None:
    """Have messages be tried again if a transaction commits."""
    parking.begin()
    try:
        await transaction.add_offsets(parking.group, [], parking.settled)
    except errors.TxBrokerError:
        parking.settle(False)
        raise
    transaction.joined_by(parking)


def hold_back(retry: Retry, returned: deque[Delivery], ahead: ReadAhead) -> None:
    """Leave out a message that is tried again, and what was read and may not be handed out before it.

    With the order "partition" that is all of the partition, which is read anew; with "key" what has the same key. After
    an interrupt some of it may come twice. The message itself may be here again, if it is retried twice.
    """
    position, message = retry.position, retry.message
    put_back(position, [message], returned, ahead)
    if message.offset < position.next:
        position.left.park(message.offset, message.key)


def put_back(
    position: Position,
    messages: Sequence[Message],
    returned: deque[Delivery],
    ahead: ReadAhead,
    read_anew: bool = False,
) -> None:
    """Leave out messages that were handed out, and what was read and may not be handed out before them; with
    ``read_anew`` nothing that was read may.
    """
    left = position.left
    position.finish_singly()
    if left.order == "partition" or read_anew:
        drop_undelivered(position, returned, ahead)
    elif left.order == "key":
        for each in {each.offset if each.key is None else each.key: each for each in messages}.values():
            _take_away(position, each.offset, each.key, returned, ahead)
    else:
        for each in messages:
            _take_away(position, each.offset, None, returned, ahead)
    for each in messages:
        if each.offset < position.next and not position.ended:
            left.put_back(each.offset, each.key)
        position.given.discard(each.offset)


def drop_undelivered(position: Position, returned: deque[Delivery], ahead: ReadAhead) -> None:
    """Drop what was read of a partition and not handed out: it is read anew. It may be called again."""
    following = position.next
    for chunk, messages in _undelivered(position, returned, ahead):
        if chunk.is_again:
            for each in messages:
                position.left.put_back(each.offset, each.key)
        elif messages:
            following = min(following, messages[0].offset)
    position.next = following
    for place in reversed(range(len(returned))):
        if returned[place].position is position:
            del returned[place]
    ahead.drop([position.number])
    # What is left out above it is read anew: a fetch that is under way must not give it, too.
    position.left.mend(position.next)


def _take_away(
    position: Position, offset: int, key: bytes | None, returned: deque[Delivery], ahead: ReadAhead
) -> None:
    """Leave out a message, and those of a key, of what was read and not handed out."""
    for place in reversed(range(len(returned))):
        delivery = returned[place]
        if delivery.position is position and (gone := _left_out(position, delivery.left, offset, key)):
            returned[place] = delivery.without(gone)
            if returned[place].is_empty:
                del returned[place]
    for place in reversed(range(len(ahead.chunks))):
        chunk = ahead.chunks[place]
        if chunk.position is position and (gone := _left_out(position, chunk.messages, offset, key)):
            kept = [each for each in chunk.messages if each.offset not in gone]
            ahead.chunks[place] = chunk._replace(messages=kept)
            if not kept:
                del ahead.chunks[place]


def _left_out(
    position: Position, messages: Sequence[frame.Message | Message], offset: int, key: bytes | None
) -> set[int]:
    """Leave out that message and those of the key; return their offsets."""
    if key is not None:
        found = [each for each in messages if each.key == key or each.offset == offset]
    elif messages and messages[0].offset <= offset <= messages[-1].offset:
        found = [each for each in messages if each.offset == offset]
    else:
        return set()
    for each in found:
        position.left.put_back(each.offset, each.key)
    return {each.offset for each in found}


def _undelivered(
    position: Position, returned: Iterable[Delivery], ahead: ReadAhead
) -> Iterator[tuple[Chunk, Sequence[frame.Message | Message]]]:
    """Yield what was read of a partition and not handed out."""
    for delivery in returned:
        if delivery.position is position and not delivery.is_empty:
            yield delivery.chunk, list(delivery.left)
    for chunk in ahead.chunks:
        if chunk.position is position:
            yield chunk, chunk.messages
