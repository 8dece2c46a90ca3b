"""Positions of consumers in their partitions, and those that a commit names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from journal.arguments import NOTHING_CHANGED, NOTHING_SENT, index_of, listed, text, whole, wrong_type
from journal.constants import MAX_REQUEST_ENTRIES
from journal.formats.offset_set_bytes import MAX_SPAN, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import MAX_FINISHED_BYTES, MAX_SETTLED, PartitionOffset, Settled
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.left_out import LeftOut
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message
from txbroker.wire.messages import FetchOffsets, GroupOffset, GroupOffsets

T = TypeVar("T")

Positions = Message | Mapping[tuple[str, int], int] | None
"""What to commit: everything handed out (None), everything up to a message, or next offsets by place."""

_COMMITTED = "None, a message, or a dict of next offsets by (topic, partition)"


def requests_of(some: Sequence[T]) -> Iterator[list[T]]:
    """Yield these in lists, each as long as a request allows."""
    for first in range(0, len(some), MAX_REQUEST_ENTRIES):
        yield list(some[first : first + MAX_REQUEST_ENTRIES])


async def stored_positions(core: Core, group: str, numbers: Sequence[int]) -> list[GroupOffset]:
    """Return a group's positions in these partitions, as the broker has them; raises UnknownPartition."""
    found: list[GroupOffset] = []
    for some in requests_of(numbers):
        found += (await core.request(FetchOffsets(core.correlation(), group, some), GroupOffsets)).offsets
    return found


def settling_requests(settled: Sequence[Settled]) -> Iterator[list[Settled]]:
    """Yield these in lists, each as long as a request allows."""
    some: list[Settled] = []
    size = entries = 0
    for each in settled:
        size += len(each.finished)
        entries += 1 + len(each.retried)
        if some and (len(some) == MAX_SETTLED or size > MAX_FINISHED_BYTES or entries > MAX_REQUEST_ENTRIES):
            yield some
            some, size, entries = [], len(each.finished), 1 + len(each.retried)
        some.append(each)
    if some:
        yield some


class TakesPart(Protocol):
    """What takes part in a transaction: messages that it has received, or tries again."""

    @property
    def group(self) -> str:
        """The group that they are read for."""

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what the transaction is to settle for the group."""

    def settle(self, committed: bool) -> None:
        """The transaction is decided."""

    def discard(self) -> None:
        """Nobody here knows how the transaction ends."""

    def fenced(self) -> None:
        """The transaction is refused: others have partitions, or hold offsets of them."""


class Joined(Protocol):
    """A transaction that positions move with."""

    async def add_offsets(
        self, group: str, offsets: list[PartitionOffset], settled: Sequence[Settled] = ()
    ) -> None:
        """Have positions move, and single offsets be settled, when the transaction commits."""

    def joined_by(self, other: TakesPart) -> None:
        """Tell another party how the transaction ends."""


@runtime_checkable
class Consumed(Protocol):
    """A consumer of any client."""

    @property
    def group(self) -> str:
        """The group's name."""

    def offsets(self) -> list[PartitionOffset]:
        """Return its positions."""


@runtime_checkable
class Finishes(Consumed, Protocol):
    """A consumer that can finish single messages."""

    def finished(self, what: Message | Sequence[Message]) -> list[Settled]:
        """Return what finishes these messages."""

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes exactly the messages that it has handed out."""

    def tell_lost(self) -> None:
        """Raise GenerationFenced, once, if it has lost some of these messages."""


class Position:
    """The position of a consumer: ``next`` to fetch, ``handed`` the offset after the handed out messages (-1: none).

    ``end`` is where the partition ended at the ``moment`` of that number; -1: it is in none. ``begin`` is where its
    reading began: the group's position then. For a group, ``left`` is what is left out and comes later. ``has_gaps``
    says that something was left out, or is tried again: then only the offsets in ``given`` may be finished, which were
    handed out, or were finished before. With the order "partition" they are noted from that moment on. ``retrying`` are
    those of them that undecided transactions try again. ``done`` are offsets that the program is done with, if they are
    finished later, ``said`` those of which the broker has answered that they are. ``alone`` are offsets of messages
    that are to be handled alone, because a consumer was lost with a batch of them. ``ended`` is why it is not read any
    more, "" while it is. ``pending`` is the transaction that it was last said to wait for. ``told`` is how far its
    messages were named in commits, as :attr:`extent`. ``paused`` says that the program wants nothing of it for now,
    ``moving`` is the request that moves the group here. ``upto`` is the offset after the messages that are being taken
    together: the last of them may be left out.
    """

    __slots__ = (
        "alone", "begin", "done", "end", "ended", "generation", "given", "handed", "has_gaps", "index", "left",
        "moment", "moving", "next", "number", "paused", "pending", "retrying", "said", "told", "topic", "upto",
    )  # fmt: skip

    def __init__(
        self, topic: str, index: int, number: int, end: int, order: str | None = "partition"
    ) -> None:
        self.topic = topic
        self.index = index
        self.number = number
        self.end = end
        self.moment = 0
        self.next = self.begin = self.upto = 0
        self.handed = -1
        self.generation = 0
        self.pending = self.ended = ""
        self.left = LeftOut(order)
        self.given = OffsetSet()
        self.retrying = OffsetSet()
        self.alone = OffsetSet()
        self.done = OffsetSet()
        self.said = OffsetSet()
        self.has_gaps = False
        self.told = (-1, 0)
        self.paused = False
        self.moving: Promise[Any] | None = None

    @property
    def is_moving(self) -> bool:
        """Whether the broker has not answered yet whether the group may go on here."""
        return self.moving is not None and not self.moving.done

    @property
    def rests(self) -> bool:
        """Whether nothing of it is fetched or handed out now, and what was fetched before is not taken."""
        return self.paused or self.is_moving

    def moved(self, offset: int) -> Position:
        """Return the position of a reading of the same partition that begins at ``offset``."""
        there = Position(self.topic, self.index, self.number, self.end, self.left.order)
        there.next = there.begin = offset
        there.moment, there.generation, there.paused = self.moment, self.generation, self.paused
        return there

    @property
    def extent(self) -> tuple[int, int]:
        """The offset after the last message that was handed out, and how many offsets were, where these are noted."""
        return self.handed, len(self.given)

    def floor(self, given: OffsetSet) -> int:
        """Return from where on a commit says again what was handed out: as far back as one set can have.

        A broker lets nobody finish an offset so far above an unfinished one, so what is below has been said.
        """
        return max(self.begin, given.end - MAX_SPAN)

    def handed_out(self) -> OffsetSet:
        """Return the offsets that were handed out, perhaps with some that were finished before."""
        handed = OffsetSet()
        if self.left.order == "partition" and not self.has_gaps:
            handed.add_range(self.begin, max(self.begin, self.handed))
        else:
            handed.update(self.given)
        return handed

    def finish_singly(self) -> None:
        """Note that a message comes again, so that from now on only what was handed out may be finished."""
        if not self.has_gaps:
            if self.left.order == "partition" and self.handed > self.begin:
                self.given.add_range(self.begin, self.handed)
            self.has_gaps = True


async def add_finished(
    transaction: Joined,
    readers: Callable[[Message], Iterable[Finishes]],
    what: Message | Sequence[Message],
    consumer: Finishes | None,
) -> None:
    """Have messages be finished with a transaction, for the group of ``consumer``, or of the one that ``readers``
    returns for all of them.

    Raises WrongType, Misuse if no consumer is named and none or several may be meant, and as :func:`group_of`.
    """
    messages = messages_of(what)
    if consumer is not None:
        if not isinstance(consumer, Finishes):
            raise wrong_type("consumer", consumer, "what consume() gives")
        await transaction.add_offsets(group_of(consumer), [], consumer.finished(messages))
        return
    if not messages:
        return
    consumer = _only_reader(readers, messages[0])
    for other in messages[1:]:
        if _only_reader(readers, other) is not consumer:
            raise errors.Misuse(
                f"done() of {len(messages)} messages that different consumers have handed out; {NOTHING_SENT}. Finish "
                "those of each consumer by themselves"
            )
    await transaction.add_offsets(group_of(consumer), [], consumer.finished(messages))


def _only_reader(readers: Callable[[Message], Iterable[Finishes]], message: Message) -> Finishes:
    """Return the one consumer that may have handed out a message; raises Misuse if there is not exactly one."""
    found: list[Finishes] = list(readers(message))
    if len(found) != 1:
        groups = ", ".join(sorted(repr(each.group) for each in found)) or "none"
        raise errors.Misuse(
            f"done() of a message of {message.topic}-{message.partition} does not say which consumer is meant: those "
            f"of this connection with a group that have handed out messages of that partition have the groups: "
            f"{groups}; {NOTHING_SENT}. Say consumer="
        )
    return found[0]


def messages_of(what: object) -> Sequence[Message]:
    """Return a message, or each of a list; raises WrongType."""
    if isinstance(what, Message):
        return [what]
    messages: Sequence[Any] = listed("what to finish", what, "messages, or a message")
    if not all(isinstance(each, Message) for each in messages):
        raise wrong_type("what to finish", what, "a message or a list of messages")
    return messages


async def add_positions(transaction: Joined, consumer: Consumed) -> None:
    """Finish with a transaction what a consumer has handed out; raises as :func:`group_of`.

    Raises GenerationFenced if the consumer has lost some of it, and the transaction cannot be committed any more: what
    was lost is a part of it then, but of none after it.
    """
    group = group_of(consumer)
    offsets, settled = consumer.settlement() if isinstance(consumer, Finishes) else (consumer.offsets(), [])
    await transaction.add_offsets(group, offsets, settled)
    if isinstance(consumer, Finishes):
        consumer.tell_lost()


def group_of(consumer: object) -> str:
    """Return the group of a consumer; raises WrongType for another object, Misuse for a consumer without a group."""
    if not isinstance(consumer, Consumed):
        raise wrong_type("consumer", consumer, "what consume() gives")
    if not consumer.group:
        raise without_group()
    return consumer.group


def without_group() -> errors.Misuse:
    """Return the error for a commit of a consumer that has no group."""
    return errors.Misuse("a consumer without a group has no positions to commit; nothing was sent")


def positions_of(
    positions: Iterable[Position], what: Message | Mapping[tuple[str, int], int]
) -> list[PartitionOffset]:
    """Return the positions to commit: after a message in its partition, or next offsets by topic and partition.

    Raises WrongType, and WrongValue for a partition that the consumer has no position in.
    """
    places = {(each.topic, each.index): each for each in positions}
    if isinstance(what, Message):
        return [_at(places, (what.topic, what.partition), what.offset + 1)]
    if not isinstance(what, Mapping):
        raise wrong_type("what to commit", what, _COMMITTED)
    return [_at(places, _place(place), offset) for place, offset in what.items()]


def finished_of(positions: Iterable[Position], what: Message | Sequence[Message]) -> list[Settled]:
    """Return what finishes these messages, and no others, for the group of a consumer with these positions.

    Raises WrongType, and WrongValue for a message of a partition that the consumer has no position in.
    """
    places = {(each.topic, each.index): each for each in positions}
    found: dict[int, tuple[PartitionOffset, OffsetSet]] = {}
    for message in messages_of(what):
        at = _at(places, (message.topic, message.partition), message.offset)
        found.setdefault(at.partition, (at, OffsetSet()))[1].add(message.offset)
    begins = {each.number: each.begin for each in places.values()}
    return [settled(at, begins[number], offsets) for number, (at, offsets) in found.items()]


def settled(at: PartitionOffset, begin: int, offsets: OffsetSet) -> Settled:
    """Return what finishes these offsets, for a reader that began at ``begin`` with the generation of ``at``.

    If the group has a position, the broker looks at no base, so after a long time a nearer one serves as well.
    """
    return set_of(at.partition, at.generation, max(begin, offsets.end - MAX_SPAN), offsets)


def set_of(partition: int, generation: int, base: int, offsets: OffsetSet) -> Settled:
    """Return what finishes these offsets; raises LimitExceeded for more than a set can have."""
    if offsets.end - offsets.first > MAX_SPAN:
        raise errors.LimitExceeded(
            f"offsets {offsets.first} and {offsets.end - 1} of one partition are to be finished in one step, the limit "
            f"is {MAX_SPAN} from one to the other; {NOTHING_SENT}. Finish them in several steps"
        )
    base = min(base, offsets.first)
    return Settled(partition, generation, base, encode_offsets(offsets, base))


def place_of(places: Mapping[tuple[str, int], Position], message: Message) -> Position:
    """Return the position that a message is of; raises WrongValue if there is none."""
    _at(places, (message.topic, message.partition), message.offset)
    return places[message.topic, message.partition]


def position_at(positions: Iterable[Position], topic: str, partition: int, doing: str) -> Position:
    """Return the position in a partition that is read now; ``doing`` is what is to be done in it, for the error.

    Raises WrongType, WrongValue.
    """
    topic, index = text("topic", topic, NOTHING_CHANGED), index_of(partition, NOTHING_CHANGED)
    for each in positions:
        if (each.topic, each.index) == (topic, index) and not each.ended:
            return each
    raise errors.WrongValue(
        f"the partition to {doing} is {topic}-{index}; it must be one that this consumer reads now, and has begun to "
        f"read; {NOTHING_CHANGED}"
    )


def _at(places: Mapping[tuple[str, int], Position], place: tuple[str, int], offset: int) -> PartitionOffset:
    number = whole("offset", offset, least=0)
    found = places.get(place)
    if found is None:
        raise errors.WrongValue(
            f"what to commit is of {place[0]}-{place[1]}, which this consumer does not read, or has not begun to; it "
            f"must be the consumer that the messages came from; {NOTHING_SENT}"
        )
    return PartitionOffset(found.number, number, found.generation)


def _place(place: Any) -> tuple[str, int]:
    if not isinstance(place, tuple) or len(place) != 2:
        raise wrong_type("a place in what to commit", place, "(topic, partition)")
    return text("topic", place[0]), named_index(place[1])
