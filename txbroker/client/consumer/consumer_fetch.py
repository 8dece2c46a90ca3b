"""The fetches of one consumer: what it asks for, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from txbroker import errors
from txbroker.client.consumer.beginning import say_what_waits, within_range
from txbroker.client.consumer.delivery import NO_ATTEMPTS
from txbroker.client.consumer.group_parts import Entry, entries_of, in_order, take
from txbroker.client.consumer.membership import Membership
from txbroker.client.consumer.moments import Moments, Wanted
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.consumer.read_ahead import Read, ReadAhead, decoded
from txbroker.client.consumer.shared_fetch import TURN, SharedFetch
from txbroker.client.core.call import named_error
from txbroker.client.core.positions import Position
from txbroker.wire.messages import FetchedPartition

RUNS: Final = 4
"""How many runs of a partition are asked for at once, and decoded ahead, if the partitions take turns."""

Found = tuple[Position, FetchedPartition, memoryview]
"""What was found at a position that was asked for."""


class Fetches(Protocol):
    """The consumer that messages are fetched for."""

    @property
    def options(self) -> ConsumerOptions:
        """Its options."""

    @property
    def positions(self) -> dict[int, Position]:
        """Its positions by number."""

    @property
    def membership(self) -> Membership | None:
        """Its membership, if it is a member of its group."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is read any more."""

    def lose(self, numbers: Collection[int], why: str) -> None:
        """Give up these partitions, which are not its own any more."""

    def drop(self, numbers: Collection[int]) -> None:
        """Drop what was read of these partitions and not handed out."""


class ConsumerFetch:
    """The part of a consumer in the connection's one fetch. What is received goes to ``ahead``, still to be decoded."""

    def __init__(self, shared_fetch: SharedFetch, consumer: Fetches, ahead: ReadAhead) -> None:
        options = consumer.options
        self._shared_fetch = shared_fetch
        self._consumer = consumer
        self._options = options
        self._ahead = ahead
        self._moments = Moments(options.follow, options.max_bytes)

    def is_read(self, positions: Collection[Position]) -> bool:
        """Return whether all of these positions have been read up to the end of the present moment."""
        return self._moments.is_read(positions)

    def end_moment(self) -> None:
        """Let the next fetch be for all partitions, also those that are new."""
        self._moments.end()

    def see_to_it(self) -> None:
        """Have what is asked for be sent, also after an interrupt."""
        self._shared_fetch.see_to_it()

    def hurry(self) -> None:
        """Have what is asked for answered now, with what there is."""
        self._shared_fetch.hurry(self)

    def leave(self) -> None:
        """Ask for nothing any more; what is asked for gets no answer."""
        self._shared_fetch.leave(self)

    async def fetch(self, only_due: bool = False) -> bool:
        """Fetch what there is, or with ``only_due`` what is tried again; return whether anything was asked for."""
        being_decoded = {position.number for position, *_ in self._ahead.undecoded}
        for position in self._consumer.positions.values():
            if position.number not in being_decoded:
                position.left.mend(position.next)
        wanted = self._moments.wanted(
            self._consumer.positions.values(), self._shared_fetch.core.max_fetch_positions
        )
        if self._consumer.is_closed:
            return False
        if only_due:
            wanted = wanted._replace(positions=[], is_new=False)
        elif self._options.max_run is not None:
            wanted = wanted._replace(positions=list(_in_turns(wanted.positions, self._options.max_run)))
        if self._options.group is not None:
            answered = await self._fetch_for(self._options.group, wanted)
            if answered is None:
                return False
            found = answered
        elif wanted.positions:
            found = await self._fetch_plain(wanted)
        else:
            return False
        for position, part, data in found:
            if self._takes(position):  # not if an error before, or a caller, has changed that
                self._take_part(position, part, data)
        return True

    def _takes(self, position: Position) -> bool:
        """Return whether what was asked for at that position is still wanted."""
        is_there = self._consumer.positions.get(position.number) is position
        return is_there and not (position.ended or position.rests)

    async def _fetch_plain(self, wanted: Wanted) -> list[Found]:
        """Fetch without a group; return what was found at positions that are still as they were."""
        asked = [(self._consumer.positions[number], offset) for number, offset, _ in wanted.positions]
        found = await self._shared_fetch.ask(self, wanted.positions, wanted.max_bytes, self._wait_of(wanted))
        self._begin_moment(wanted, [part for part, _ in found])
        return [
            (position, part, data)
            for (position, offset), (part, data) in zip(asked, found, strict=True)
            if position.next == offset
        ]

    def _wait_of(self, wanted: Wanted) -> float:
        most = self._options.max_wait
        return min(most, TURN) if wanted.is_part else most

    async def _fetch_for(self, group: str, wanted: Wanted) -> list[Found] | None:
        """Fetch for a group; take what is told of what waits, and return the errors. None: there is nothing to ask."""
        self._check_fenced()
        entries, reader = entries_of(self._consumer.positions.values(), wanted.positions, group)
        asked = [(each.position.number, each.offset, each.until) for each in entries]
        if not asked:
            return None
        found = await self._shared_fetch.ask(self, asked, wanted.max_bytes, self._wait_of(wanted), reader)
        parts = [
            (entry, part, data)
            for entry, (part, data) in zip(entries, found, strict=True)
            if self._takes(entry.position)
        ]
        self._begin_moment(
            wanted, [part for entry, (part, _) in zip(entries, found, strict=True) if self._has(entry)]
        )
        wrong: list[Found] = []
        again: list[Read] = []
        later: list[Read] = []
        for entry, part, data in in_order(parts):
            if part.error and not entry.is_again:
                wrong.append((entry.position, part, data))
            elif part.error == "OffsetOutOfRange":
                entry.position.left.forget_below(part.start_offset)
            elif not part.error and (pieces := take(entry, part, data, self._options.max_run)) is not None:
                self._moments.took(part.length)
                queue = again if entry.is_again else later
                queue.append((entry.position, pieces, dict(part.attempts)))
        self._ahead.undecoded.extendleft(reversed(again))  # first, because the group's position waits for it
        self._ahead.undecoded += later
        await say_what_waits(self._shared_fetch.core, group, self._consumer.positions.values())
        return wrong

    def _has(self, entry: Entry) -> bool:
        """Return whether the partition of an entry is read as it was, be it at another position or not now."""
        now = self._consumer.positions.get(entry.position.number)
        return now is not None and now.generation == entry.position.generation and not now.ended

    def _begin_moment(self, wanted: Wanted, parts: list[FetchedPartition]) -> None:
        if wanted.is_new:
            self._moments.begin(self._consumer.positions, parts)

    def _check_fenced(self) -> None:
        """Raise GenerationFenced if others have claimed all partitions of a consumer that named them."""
        fenced = [each.ended for each in self._consumer.positions.values()]
        if self._consumer.membership is None and fenced and all(fenced):
            raise errors.GenerationFenced(fenced[0])

    def _take_part(self, position: Position, part: FetchedPartition, data: memoryview) -> None:
        if part.error:
            self._out_of_range(position, part)
        elif part.length:
            self._moments.took(part.length)
            pieces = decoded(data, position.next, self._options.max_run)
            self._ahead.undecoded.append((position, pieces, NO_ATTEMPTS))

    def _out_of_range(self, position: Position, part: FetchedPartition) -> None:
        where = f"{position.topic}-{position.index}"
        there = part.start_offset, part.high_watermark
        if self._consumer.membership is not None and part.error in ("GenerationFenced", "UnknownPartition"):
            self._consumer.lose([position.number], part.message)
            self._consumer.membership.release([position.number])
            return
        if part.error == "GenerationFenced":
            position.ended = f"{where}: {part.message}"
            self._consumer.drop([position.number])
        if part.error != "OffsetOutOfRange":
            self._moments.leave(position)
            raise named_error(part.error, f"{where}: {part.message}", part.numbers or {}, part.texts or {})
        if self._options.out_of_range == "raise":
            self._moments.leave(position)
        position.next = within_range(position, self._options.out_of_range, there, part.message)


def _in_turns(wanted: list[tuple[int, int, int]], max_run: int) -> Iterator[tuple[int, int, int]]:
    """Yield what to ask for, (number, offset, until), of each partition a few runs. The broker answers with whole
    batches, so that it may be some hundred small messages more.
    """
    for number, offset, until in wanted:
        end = offset + RUNS * max_run
        yield number, offset, min(until or end, end)
