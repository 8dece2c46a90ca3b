"""A consumer without I/O: positions for each partition, prefetch by long polls, groups, claims and commits."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from journal.formats import frame
from journal.formats.group_entries import PartitionOffset, Settled
from journal.offset_set import OffsetSet
from txbroker import errors
from txbroker.client.consumer.beginning import claim, positions_to_read
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.consumer.group_parts import entries_of, take
from txbroker.client.consumer.moments import Moments, Wanted
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.consumer.read_ahead import ReadAhead
from txbroker.client.consumer.shared_fetch import Part, SharedFetch
from txbroker.client.core.call import named_error
from txbroker.client.core.positions import (
    Finishes,
    Joined,
    Position,
    Positions,
    finished_of,
    positions_of,
    requests_of,
    settling_requests,
    stored_positions,
    without_group,
)
from txbroker.client.core.positions import (
    settled as settled_of,
)
from txbroker.client.core.promise import Errand, Promise
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Turn
from txbroker.wire.messages import (
    CommitOffsets,
    Done,
    FetchedPartition,
)

log = logging.getLogger("txbroker.client")


class ConsumerCore:
    """One consumer, without I/O. It fetches by itself while fewer than ``prefetch`` bytes, uncompressed, wait."""

    def __init__(self, shared_fetch: SharedFetch, options: ConsumerOptions, member: str) -> None:
        core = shared_fetch.core
        self.options = options
        self.positions: dict[int, Position] = {}
        self.line = core.waits.line(lambda: self._is_here or self.finished)
        """The callers that wait for messages, or for the end of the reading."""
        self._core = core
        self._shared_fetch = shared_fetch
        self._member = member
        self._current: Delivery | None = None
        self._returned: deque[Delivery] = deque()
        self._is_doubtful = False
        """Whether messages were given back and the broker has not been asked since whether the claim still holds."""
        self._asking: Errand | None = None
        self._begun_asking: Promise[None] = Promise()
        self._ahead = ReadAhead()
        self._chunks = self._ahead.chunks
        self._moments = Moments(options.follow, options.max_bytes)
        self._reading: Errand | None = None
        self._begun_reading: Promise[None] = Promise()
        self._begun = False
        self._closed = False
        self._failure: Exception | None = None
        self._not_told: Exception | None = None  # the error with which asking for the claim failed

    # -- for the front ends ------------------------------------------------------------------------

    @property
    def current(self) -> Delivery | None:
        """The delivery that is being handed out, if any of it is left."""
        current = self._current
        return None if current is None or current.is_empty else current

    def look(self) -> Delivery | None:
        """Return the next delivery to hand out, if it is here; raise the error of the reading (the next call tries
        again).
        """
        current = None if self._is_doubtful else self.current or self._next()
        if self._is_doubtful and self._not_told is not None:
            failure, self._not_told = self._not_told, None
            raise failure
        if current is None and self._failure is not None and not self._is_doubtful:
            failure, self._failure = self._failure, None
            raise failure
        self._go_on()
        return current

    def _next(self) -> Delivery | None:
        """Go on to the delivery after the present one. After an interrupt anywhere it can be called again."""
        if self._current is not None:
            self._current.count()
        self._drop_current()
        if self._returned:
            self._current = self._returned[0]
        elif self._chunks:
            self._current = Delivery(self._chunks[0])
        else:
            self._current = None
        self._drop_current()
        return self._current

    def _drop_current(self) -> None:
        """Count the present delivery as handed out."""
        current = self._current
        if current is not None and self._chunks and self._chunks[0] is current.chunk:
            self._chunks.popleft()
        if self._returned and self._returned[0] is current:
            self._returned.popleft()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Have these handed out again, in their order, before anything else, if the group's claim still holds.

        The broker is asked for the claim when the next message is wanted. If others have claimed a partition since,
        they may have handled the messages that were given back or read ahead. Then all of these are dropped and read
        anew, as at the beginning.
        """
        self._drop_current()
        again = [delivery for delivery in deliveries if delivery.messages]
        self._is_doubtful = self._is_doubtful or bool(again)
        for delivery in again:
            delivery.give_back()
        current = self._current
        if current is not None and current not in again and not current.is_empty:
            again.append(current)
        self._current = None
        self._returned.extendleft(reversed(again))
        self.line.move()

    @property
    def _is_here(self) -> bool:
        if self._is_doubtful:
            return self._not_told is not None
        return bool(self.current or self._returned or self._chunks or self._failure is not None)

    @property
    def finished(self) -> bool:
        """Whether no further message will come: the consumer is closed, or it does not follow and is at the end."""
        if self._is_here or self._closed:
            return not self._is_here
        at_end = self._begun and not self.options.follow and not self._behind()
        return at_end and not self._is_doubtful

    @property
    def whole(self) -> bool:
        """Whether the handed out messages are all of one moment. Waiting messages are checked last: other threads add
        some.
        """
        is_read = self._begun and self._moments.is_read([*self.positions.values()])
        waits = self._is_doubtful or self.current or self._returned or self._chunks or self._ahead.undecoded
        return is_read and not waits

    def join(self, deadline: float = math.inf) -> Turn:
        """Get in line for what :meth:`look` returns, until ``deadline`` by the core's clock."""
        self._go_on()
        self._shared_fetch.see_to_it()
        return self.line.join(deadline)

    def close(self) -> None:
        """Stop reading. Messages that have not been handed out stay uncommitted."""
        self._closed = True
        self._forget()
        if self._asking is not None:
            self._asking.cancel()
        self.line.move()

    def _forget(self) -> None:
        """Drop the messages that were read, and end the reading."""
        self._current = None
        self._returned.clear()
        self._ahead.clear()
        self._shared_fetch.leave(self)
        if self._reading is not None:
            self._reading.cancel()

    def handed_out(self) -> list[PartitionOffset]:
        """The positions after the messages that were handed out, for a commit; below what was left out."""
        current = self._current
        found = []
        for position in list(self.positions.values()):
            at = position.handed
            if current is not None and current.position is position and current.handed >= 0:
                at = current.handed
            if position.has_gaps:
                at = self._given(position).missing_from(position.begin)
                at = at if at > position.begin else -1
            if at >= 0:
                found.append(PartitionOffset(position.number, at, position.generation))
        return found

    def _given(self, position: Position) -> OffsetSet:
        """Return the offsets of a position that were handed out, or were finished before, at or above its begin."""
        given = position.given.copy()
        if self._current is not None and self._current.position is position:
            for offset in self._current.handed_offsets():
                given.add(offset)
        given.discard_below(position.begin)
        return given

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes exactly the messages that were handed out: positions, and offsets where some were left
        out.
        """
        gaps = {each.number: each for each in self.positions.values() if each.has_gaps}
        settled = []
        for position in gaps.values():
            if given := self._given(position):
                at = PartitionOffset(position.number, 0, position.generation)
                settled.append(settled_of(at, position.begin, given))
        return [each for each in self.handed_out() if each.partition not in gaps], settled

    async def commit(self, what: Positions = None, joined: Joined | None = None) -> None:
        """Commit positions ``what`` of the group (None: :meth:`settlement`); returns once forced. Raises
        GenerationFenced.

        With ``joined`` they become part of that transaction instead, and move when it commits.
        """
        if self.options.group is None:
            raise without_group()
        settled: list[Settled] = []
        if what is None:
            offsets, settled = self.settlement()
        else:
            offsets = positions_of(self.positions.values(), what)
        if joined is not None:
            await joined.add_offsets(self.options.group, offsets, settled)
        else:
            await self._settle(self.options.group, offsets, settled)

    async def done(self, what: Message | Sequence[Message], joined: Joined | None = None) -> None:
        """Finish these messages for the group, and no others; returns once forced. ``joined`` is as in
        :meth:`commit`.
        """
        if self.options.group is None:
            raise without_group()
        settled = finished_of(self.positions.values(), what)
        if joined is not None:
            await joined.add_offsets(self.options.group, [], settled)
        else:
            await self._settle(self.options.group, [], settled)

    async def _settle(self, group: str, offsets: list[PartitionOffset], settled: list[Settled]) -> None:
        core = self._core
        for some in requests_of(offsets):
            await core.request(CommitOffsets(core.correlation(), group, some), Done)
        for few in settling_requests(settled):
            await core.request(CommitOffsets(core.correlation(), group, [], settled=few), Done)

    def known_as(self, consumer: Finishes) -> None:
        """Let transactions of the connection find the consumer by what it has handed out."""
        if self.options.group is not None:
            self._core.consumers[consumer] = self

    def has_handed_out(self, topic: str, index: int) -> bool:
        """Whether it reads on and has handed out a message of that partition."""
        current = None if self._current is None else self._current.position
        return not self._closed and any(
            (each.topic, each.index) == (topic, index) and (each.handed >= 0 or each is current)
            for each in self.positions.values()
        )

    # -- the reading -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start a fetch, if none is under way and there is room. After an interrupt anywhere it can be called again."""
        if self._is_doubtful and not self._closed:
            self._ask_for_claim()
        has_ended = self._reading is None or self._reading.done
        if has_ended and not self._closed and self._ahead.size < self.options.prefetch:
            self._ahead.mend(None if self._current is None else self._current.chunk)
            begun: Promise[None] = Promise()
            reading = Errand(self._read(begun))
            reading.then(self.line.move)
            self._begun_reading, self._reading = begun, reading
        self._begun_reading.resolve(None)
        if self._reading is not None:
            self._reading.wake()

    def _ask_for_claim(self) -> None:
        """Ask whether the claim holds, unless that is under way. After an interrupt anywhere it can be called again."""
        if self._asking is None or self._asking.done:
            begun: Promise[None] = Promise()
            asking = Errand(self._find_out(begun))
            asking.then(self._found_out)
            self._begun_asking, self._asking = begun, asking
        self._begun_asking.resolve(None)
        self._asking.wake()

    async def _find_out(self, begun: Promise[None]) -> None:
        await begun  # so that the effects of this find the task noted
        try:
            if not await self._claim_stands():
                self._begun, self._failure = False, None
                self._forget()
                self.positions.clear()
            self._is_doubtful = False  # last: after an interrupt before this line, it is asked again
        except Exception as error:  # noqa: BLE001 - the next look() raises it
            self._not_told = error

    async def _claim_stands(self) -> bool:
        """Return whether the group's partitions are still claimed by this consumer."""
        try:
            known = await stored_positions(self._core, self.options.group or "", list(self.positions))
        except errors.UnknownPartition:
            return False
        return all(found.generation == self.positions[found.partition].generation for found in known)

    def _found_out(self) -> None:
        if not self._is_doubtful:
            self._go_on()
        self.line.move()

    async def _read(self, begun: Promise[None]) -> None:
        await begun  # so that the effects of this find the task noted
        try:
            if not self._begun:
                await self._begin()
                self._begun = True
                self.line.move()
            while not self._closed and self._ahead.size < self.options.prefetch:
                if self._ahead.undecoded:
                    if self._ahead.decode():
                        self.line.move()
                    continue
                if not self.options.follow and not self._behind():
                    break
                await self._fetch()
        except Exception as error:  # noqa: BLE001 - the next look() raises it
            self._failure = error

    def _behind(self) -> bool:
        return any(each.next < each.end or each.left for each in self.positions.values() if not each.fenced)

    async def _begin(self) -> None:
        positions = await positions_to_read(self._core, self.options)
        if self.options.group is not None and self.options.claim:
            await claim(self._core, self.options.group, self._member, positions)
        await self.assign(positions.values())

    async def assign(self, positions: Iterable[Position]) -> None:
        """Begin to read partitions, each with its generation, at the group's position or where the options say."""
        fresh = {position.number: position for position in positions}
        if self.options.group is not None:
            for found in await stored_positions(self._core, self.options.group, list(fresh)):
                position = fresh[found.partition]
                if found.offset is not None and self.options.start == "committed":
                    position.next = position.begin = found.offset
        self.positions.update(fresh)
        self._shared_fetch.hurry(self)

    def revoke(self, numbers: Collection[int]) -> None:
        """Stop reading partitions: what was read of them and not handed out is dropped."""
        for number in numbers:
            self.positions.pop(number, None)
        self._drop(numbers)
        self._shared_fetch.hurry(self)

    def _drop(self, numbers: Collection[int]) -> None:
        """Drop what was read of these partitions and not handed out."""
        if self._current is not None and self._current.position.number in numbers:
            self._current.count()
            self._current = None
        for place in reversed(range(len(self._returned))):
            if self._returned[place].position.number in numbers:
                del self._returned[place]
        self._ahead.drop(numbers)

    async def _fetch(self) -> None:
        for position in self.positions.values():
            position.left.mend(position.next)
        wanted = self._moments.wanted(self.positions.values())
        if self._closed:
            return
        if self.options.group is not None:
            found = await self._fetch_for(self.options.group, wanted)
        elif wanted.positions:
            found = await self._shared_fetch.ask(
                self, wanted.positions, wanted.max_bytes, self.options.max_wait
            )
            self._begin_moment(wanted, [part for part, _ in found])
        else:
            return
        for part, data in found:
            self._take_part(part, data)

    async def _fetch_for(self, group: str, wanted: Wanted) -> list[Part]:
        """Fetch for a group; take what is told of what waits, and return the errors."""
        self._check_fenced()
        entries, reader = entries_of(self.positions.values(), wanted.positions, group)
        asked = [(each.position.number, each.offset, each.until) for each in entries]
        if not asked:
            return []
        found = await self._shared_fetch.ask(self, asked, wanted.max_bytes, self.options.max_wait, reader)
        parts = [
            (entry, part, data)
            for entry, (part, data) in zip(entries, found, strict=True)
            if self.positions.get(part.partition) is entry.position  # it was not revoked meanwhile
        ]
        self._begin_moment(wanted, [part for _, part, _ in parts])
        wrong: list[Part] = []
        for entry, part, data in parts:
            if part.error and not entry.is_again:
                wrong.append((part, data))
            elif part.error == "OffsetOutOfRange":
                entry.position.left.forget_below(part.start_offset)
            elif not part.error and (pieces := take(entry, part, data)) is not None:
                self._moments.took(part.length)
                self._ahead.undecoded.append((entry.position, pieces))
        await self._say_what_waits(group)
        return wrong

    def _begin_moment(self, wanted: Wanted, parts: list[FetchedPartition]) -> None:
        if wanted.is_new:
            self._moments.begin(self.positions, parts)

    async def _say_what_waits(self, group: str) -> None:
        """Log of partitions where something has begun to wait which transaction holds it, if one does."""
        waits = [each for each in self.positions.values() if each.left.waiting]
        for each in self.positions.values():
            if not each.left.waiting:
                each.pending = ""
        fresh = {each.number: each for each in waits if not each.pending}
        if not fresh:
            return
        for found in await stored_positions(self._core, group, list(fresh)):
            position = fresh[found.partition]
            position.pending = found.pending_by or "nothing that is known"
            if found.pending_by:
                log.warning(
                    "group %s waits at %s-%d: its offset is held by the undecided transaction %s",
                    group, position.topic, position.index, found.pending_by,
                )  # fmt: skip

    def _check_fenced(self) -> None:
        """Raise GenerationFenced if others have claimed all partitions."""
        fenced = [each.fenced for each in self.positions.values()]
        if fenced and all(fenced):
            raise errors.GenerationFenced(fenced[0])

    def _take_part(self, part: FetchedPartition, data: memoryview) -> None:
        position = self.positions[part.partition]
        if part.error:
            self._out_of_range(position, part)
        elif part.length:
            self._moments.took(part.length)
            self._ahead.undecoded.append((position, frame.decode_pieces(data, position.next)))

    def _out_of_range(self, position: Position, part: FetchedPartition) -> None:
        where = f"{position.topic}-{position.index}"
        there = part.start_offset, part.high_watermark
        if part.error == "GenerationFenced":
            position.fenced = f"{where}: {part.message}"
            self._drop([position.number])
        if part.error != "OffsetOutOfRange":
            self._moments.leave(position)
            raise named_error(part.error, f"{where}: {part.message}", part.numbers or {}, part.texts or {})
        if self.options.out_of_range == "raise":
            self._moments.leave(position)
            reason = f"{where}: offset {position.next} is not within {there[0]} to {there[1]}"
            raise errors.OffsetOutOfRange(f"{reason}; {part.message}", *there)
        target = part.high_watermark if self.options.out_of_range == "latest" else part.start_offset
        log.warning(
            "%s: offset %d is out of range (%d to %d are there); going on at %d because of out_of_range=%r",
            where, position.next, *there, target, self.options.out_of_range,
        )  # fmt: skip
        position.next = target
