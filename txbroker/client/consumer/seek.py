"""Seeking: a consumer goes on to read a partition at another offset, and the position of its group moves with it."""

from __future__ import annotations

from typing import Any, Protocol

from journal.arguments import NOTHING_CHANGED, whole, wrong_value
from journal.records.group_entries import PartitionOffset
from txbroker import errors
from txbroker.client.consumer.beginning import check_topics, start_of
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Joined, Position, position_at
from txbroker.client.core.promise import settled
from txbroker.wire.messages import CommitOffsets, Done

_WANTED = "an offset, 'earliest' or 'latest'"
_DOING = "go on in"


class Seeks(Protocol):
    """A consumer that can go on elsewhere, without I/O."""

    @property
    def core(self) -> Core:
        """The core of its connection."""

    @property
    def options(self) -> ConsumerOptions:
        """Its options."""

    @property
    def positions(self) -> dict[int, Position]:
        """Its positions by number."""

    def replace(self, position: Position, there: Position) -> None:
        """Have a partition read at another position, and nothing of what was read at the one before."""

    def look_again(self) -> None:
        """Ask the broker for what is there now."""


async def seek(consumer: Seeks, topic: str, partition: int, offset: Any, joined: Joined | None) -> None:
    """Go on in a partition at an offset; with a group, once the broker has moved the group there.

    Raises WrongType, WrongValue, Misuse in a transaction that commits ``joined``, and what the broker refuses the
    position with.
    """
    start = _checked(offset)
    position = position_at(consumer.positions.values(), topic, partition, _DOING)
    group = consumer.options.group
    if joined is not None and group is not None:
        raise errors.Misuse(
            f"seek() in {position.topic}-{position.index} between tpc_begin and the end of that transaction, of which "
            f"it would be no part; {NOTHING_CHANGED}. End the transaction first, or move the group with it: "
            "commit({(topic, partition): offset})"
        )
    at = start if isinstance(start, int) else await _offset_of(consumer, position, start)
    while (position := position_at(consumer.positions.values(), topic, partition, _DOING)).moving is not None:
        if position.moving.done:
            break
        await settled(position.moving)
    if group is None:
        consumer.replace(position, position.moved(at))
        consumer.look_again()
    else:
        await Seek(consumer, group, position, at).carry_out()


def _checked(offset: Any) -> int | str:
    if isinstance(offset, str):
        if offset not in ("earliest", "latest"):
            raise wrong_value("offset", offset, _WANTED, NOTHING_CHANGED)
        return offset
    return whole("offset", offset, NOTHING_CHANGED, least=0, wanted=_WANTED)


async def _offset_of(consumer: Seeks, position: Position, start: str) -> int:
    """Return where a partition begins or ends now; raises UnknownTopic, UnknownPartition."""
    for topic in await check_topics(consumer.core, consumer.options._replace(topics=(position.topic,))):
        for part in topic.partitions:
            if part.number == position.number:
                return start_of(start, part.start_offset, part.high_watermark)
    raise errors.UnknownPartition(
        f"{position.topic}-{position.index} is not there any more; {NOTHING_CHANGED}"
    )


class Seek:
    """The move of a group in one partition. From the request to its answer the partition is at the new place here, and
    rests: so no commit meanwhile is of the old one. If the broker refuses, what was before is so again.

    The request goes on if its caller gives up. If its outcome is not known, reading goes on at the new place: behind it
    nothing is finished unseen, wherever the group is.
    """

    def __init__(self, consumer: Seeks, group: str, before: Position, offset: int) -> None:
        self._consumer = consumer
        self._group = group
        self._before = before
        self._there = before.moved(offset)

    async def carry_out(self) -> None:
        """Move; ends once that is forced."""
        core, there = self._consumer.core, self._there
        at = PartitionOffset(there.number, there.begin, there.generation)
        call = core.request(CommitOffsets(core.correlation(), self._group, [at]), Done)
        try:
            self._begin(call)
        except BaseException:
            self._begin(call)  # an interrupt came in there: it is done again
            raise
        await call

    def _begin(self, call: Call[Done]) -> None:
        self._there.moving = call
        self._consumer.replace(self._before, self._there)
        call.then(lambda: self._answered(call))

    def _answered(self, call: Call[Done]) -> None:
        """Go on reading; it may be called again."""
        before, there, positions = self._before, self._there, self._consumer.positions
        is_refused = call.error is not None and not isinstance(call.error, errors.OutcomeUnknown)
        if is_refused and positions.get(there.number) is there:
            before.paused, before.ended = there.paused, there.ended
            positions[there.number] = before
        self._consumer.look_again()
