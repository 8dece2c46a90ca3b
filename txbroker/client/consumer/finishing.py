"""Messages that a program is done with and that are finished later: a request at intervals finishes all of them.

What is to be said is known by partition: what the program is done with, without what the broker has answered. So
whatever is interrupted, lost or refused for now is said by a later request, and what is said twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from journal.constants import KIB
from journal.formats.offset_set_bytes import MAX_SPAN
from journal.offset_set import OffsetSet
from journal.records.group_entries import MAX_FINISHED_BYTES, PartitionOffset, Settled
from txbroker import errors
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Position, settled, settling_requests
from txbroker.client.core.promise import Promise
from txbroker.client.core.waits import Alarm
from txbroker.wire.messages import CommitOffsets, Done

log = logging.getLogger("txbroker.client")

GONE: Final = (errors.GenerationFenced, errors.UnknownPartition)
"""Refusals of what is another's by now, or nobody's."""
NOT_YET: Final = (errors.OffsetPending, errors.TooFarAhead)
"""Refusals for now of what is in one partition: others, and what is lower in this one, may be finished."""
LATER: Final = (*NOT_YET, errors.StorageUnavailable, errors.RequestTimedOut, errors.ConnectionUnavailable)
"""Errors after which the same is said again."""
MOST_SAID: Final = MAX_FINISHED_BYTES - 4 * KIB
"""Most bytes of one set that is said in one piece."""

RELEASED: Final = "the group asked it back, and all that was handed out of it was finished"
"""Why a partition is not read any more that was given back, with what was finished in it."""


class Part(NamedTuple):
    """What is finished in a partition."""

    position: Position
    offsets: OffsetSet

    @property
    def said(self) -> Settled:
        """The same for the broker."""
        at = PartitionOffset(self.position.number, 0, self.position.generation)
        return settled(at, self.position.begin, self.offsets)

    def halves(self) -> list[Part]:
        """Return the lower and the upper half of it."""
        first, end = self.offsets.first, self.offsets.end
        middle = (first + end) // 2
        halves = (self.offsets.within(first, middle), self.offsets.within(middle, end))
        return [Part(self.position, each) for each in halves if each]


class Finishing:
    """Finishes messages ``interval`` seconds after a program was done with the first of them; with ``by_itself`` it is
    done with what it was handed out when it asks for more.

    ``known`` returns the positions of the consumer, also of what it has lost; ``carried`` those that are said to the
    broker in another way. ``on_told`` is called after each answer, ``on_refused`` with an error that is not expected.
    """

    def __init__(
        self,
        core: Core,
        group: str,
        interval: float,
        by_itself: bool,
        known: Callable[[], Iterable[Position]],
        carried: Callable[[Position], bool],
        on_told: Callable[[], object],
        on_refused: Callable[[errors.TxBrokerError], object],
    ) -> None:
        self._core = core
        self._group = group
        self._interval = interval
        self._by_itself = by_itself
        self._known = known
        self._carried = carried
        self._on_told = on_told
        self._on_refused = on_refused
        self._under_way: tuple[Delivery, int] | None = None
        self._calls: dict[Call[Done], Sequence[Part]] = {}
        self._alarm: Alarm | None = None
        self._ended: Promise[None] | None = None

    # -- what the program is done with ------------------------------------------------------------------

    def add(self, position: Position, offset: int) -> None:
        """Note that the program is done with a message."""
        position.done.add(offset)
        self._arm()

    def begins(self, delivery: Delivery | None) -> None:
        """Note that the program is about to get messages of a delivery (None: it asks for some), and so is done with
        what it was handed out before.
        """
        if self._by_itself:
            self._under_way = None if delivery is None else (delivery, delivery.handed_count)
            self._arm()

    def done(self, position: Position) -> OffsetSet:
        """Return the offsets that the program is done with."""
        found = position.done.copy()
        if self._by_itself:
            handed = position.handed_out()
            if self._under_way is not None and self._under_way[0].position is position:
                delivery, before = self._under_way
                for message in delivery.handed_messages()[before:]:
                    handed.discard(message.offset)
            found.update(handed)
        found.discard_below(position.floor(found))
        return found

    def unsaid(self, position: Position) -> OffsetSet:
        """Return those of which the broker has not answered yet that they are finished."""
        found = self.done(position)
        found.difference_update(position.said)
        return found

    # -- saying it --------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have it said after the interval. From now on the client's connection is looked after."""
        self._core.attending[self] = None
        if self._alarm is None or self._alarm.call is None:
            self._alarm = self._core.waits.alarm(self._interval, self.say)

    def say(self) -> None:
        """Say what is not said yet. It may be called at any time."""
        for call in [each for each in self._calls if each.done]:
            self._answered(call)  # an interrupt has kept it from that
        asked = [part for parts in self._calls.values() for part in parts]
        self._send([part for each in self._known() if (part := self._part(each, asked)) is not None])
        if self._calls:
            self._arm()
        elif self._alarm is None or self._alarm.call is None:
            self._core.attending.pop(self, None)

    def _part(self, position: Position, asked: Iterable[Part]) -> Part | None:
        if self._carried(position):
            return None
        offsets = self.unsaid(position)
        for each in asked:
            if each.position is position:
                offsets.difference_update(each.offsets)
        return Part(position, offsets) if offsets else None

    def _send(self, parts: Sequence[Part]) -> None:
        """Say these, in as few requests as the broker allows; all of them at once, before anything that comes then."""
        left = [each for part in parts for each in _pieces(part)]
        for some in list(settling_requests([part.said for part in left])):
            mine, left = left[: len(some)], left[len(some) :]
            call = self._core.request(
                CommitOffsets(self._core.correlation(), self._group, [], settled=some), Done
            )
            self._calls[call] = mine
            call.then(partial(self._answered, call))

    def _answered(self, call: Call[Done]) -> None:
        parts = self._calls.get(call)
        if parts is None:
            return
        error = call.error
        if error is None:
            _note_said(parts)
        elif len(parts) > 1 and isinstance(error, (*NOT_YET, *GONE)):
            for part in parts:
                self._send([part])  # to find out which of them it is about
        elif isinstance(error, errors.TooFarAhead) and len(parts[0].offsets) > 1:
            for part in parts[0].halves():
                self._send([part])  # what is lower may be finished
        elif isinstance(error, GONE):
            _note_said(parts)
            self._tell_gone(parts[0], error)
        elif isinstance(error, LATER) or not isinstance(error, errors.TxBrokerError) or self._core.fatal:
            log.info("group %s: what is done is finished later: %s", self._group, error)
        else:
            _note_said(parts)
            self._on_refused(error)
        self._calls.pop(call, None)  # last: after an interrupt before this line it is done again
        if self._ended is not None and not self._calls:
            self._end(self._ended)
        self._on_told()

    def _tell_gone(self, part: Part, error: BaseException) -> None:
        """Log that messages are another's; if they went along with a release, they are finished by that."""
        position = part.position
        log.log(
            logging.INFO if position.ended == RELEASED else logging.WARNING,
            "group %s: %d messages of %s-%d that were done are another's to handle: %s",
            self._group, len(part.offsets), position.topic, position.index, error,
        )  # fmt: skip

    # -- for the connection -----------------------------------------------------------------------------

    def committed(self) -> None:
        """Nothing of a transaction is said here."""

    def mend(self) -> None:
        """Repair after an interrupt: what was being noted is said after the interval."""
        self._arm()

    def leave(self) -> Promise[Any] | None:
        """Say what is left. Returns a promise for when all of it is answered, None if there is nothing to say."""
        self.say()
        if not self._calls:
            self._core.attending.pop(self, None)
            return None
        if self._ended is None:
            self._ended = Promise()
        return self._ended

    def _end(self, ended: Promise[None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._core.attending.pop(self, None)
        ended.resolve(None)


def _pieces(part: Part) -> list[Part]:
    """Return a part in pieces that are small enough for a request."""
    if len(part.said.finished) <= MOST_SAID:
        return [part]
    return [piece for half in part.halves() for piece in _pieces(half)]


def _note_said(parts: Sequence[Part]) -> None:
    """Note that the broker has answered what is finished; what is far below is known to be."""
    for position, offsets in parts:
        position.said.update(offsets)
        edge = max(position.done.end, position.handed) - MAX_SPAN
        position.done.discard_below(edge)
        position.said.discard_below(edge)
