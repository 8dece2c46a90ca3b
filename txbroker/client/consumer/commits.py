"""What a consumer has handed out of its partitions, and the commits of it for its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from journal.offset_set import OffsetSet
from journal.records.group_entries import PartitionOffset, Settled
from txbroker import errors
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.core import Core
from txbroker.client.core.positions import (
    Finishes,
    Joined,
    Position,
    Positions,
    finished_of,
    messages_of,
    positions_of,
    requests_of,
    settling_requests,
    without_group,
)
from txbroker.client.core.positions import settled as settled_of
from txbroker.client.core.results import Message
from txbroker.wire.messages import CommitOffsets, Done


class Commits:
    """The commits of one consumer. ``positions`` are those of its partitions by number, ``delivery`` returns what is
    being handed out. ``on_done`` is called when something has been committed.

    A member may lose a partition: another has it, and the messages that were handed out of it and not committed are
    the other's. A commit that would have covered them raises GenerationFenced, once.
    """

    def __init__(
        self,
        core: Core,
        group: str | None,
        positions: Mapping[int, Position],
        delivery: Callable[[], Delivery | None],
        on_done: Callable[[], object],
    ) -> None:
        self.group = group
        self.closed = False
        self.later: Callable[[Position, int], object] | None = None
        """Called with what is to be finished later; None if everything is finished at once."""
        self._core = core
        self._positions = positions
        self._delivery = delivery
        self._on_done = on_done
        self._lost: dict[tuple[str, int], Position] = {}
        """Partitions that are not the consumer's any more, and have not come back to it."""
        self._unnamed: dict[tuple[str, int], Position] = {}
        """Of each place the first lost partition with messages that no commit has named, also if it has come back."""

    # -- what was handed out ------------------------------------------------------------------------

    def count(self) -> None:
        """Note in the positions what has been handed out of the present delivery."""
        delivery = self._delivery()
        if delivery is not None:
            delivery.count()

    def handed_out(self) -> list[PartitionOffset]:
        """The positions after the messages that were handed out, for a commit; below what was left out."""
        self.count()
        return self._after(self._positions.values())

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes exactly the messages that were handed out: positions, and offsets where some were left
        out. Those of lost partitions are among them, so that a transaction of which they are a part is refused.
        """
        self.count()
        return self._settlement(self._with_unsaid())

    def _with_unsaid(self) -> list[Position]:
        """Return all positions; of a partition that was lost and came back, the lost one, which is refused."""
        lost = self._unsaid()
        numbers = {each.number for each in lost}
        return [*(each for each in self._positions.values() if each.number not in numbers), *lost]

    def _settlement(self, positions: Iterable[Position]) -> tuple[list[PartitionOffset], list[Settled]]:
        settled, whole = [], []
        for position in positions:
            if not position.has_gaps:
                whole.append(position)
            elif given := _given(position):
                at = PartitionOffset(position.number, 0, position.generation)
                settled.append(settled_of(at, position.begin, given))
        return self._after(whole), settled

    def _after(self, positions: Iterable[Position]) -> list[PartitionOffset]:
        found = []
        for position in positions:
            at = position.handed
            if position.has_gaps:
                given = _given(position)
                at = given.missing_from(position.floor(given))
                at = at if at > position.floor(given) else -1
            if at >= 0:
                found.append(PartitionOffset(position.number, at, position.generation))
        return found

    def has_handed_out(self, topic: str, index: int, generation: int | None = None) -> bool:
        """Whether a message of that partition was handed out, under that generation (None: under any)."""
        delivery = self._delivery()
        current = None if delivery is None else delivery.position
        return not self.closed and any(
            (each.topic, each.index) == (topic, index)
            and generation in (None, each.generation)
            and (each.handed >= 0 or each is current)
            for each in self.known()
        )

    # -- partitions that are gone ---------------------------------------------------------------------

    def take(self, position: Position) -> None:
        """Note that a partition is the consumer's, perhaps again."""
        self._lost.pop((position.topic, position.index), None)

    def lose(self, position: Position, why: str) -> None:
        """Note that a partition is not the consumer's any more."""
        self.count()
        position.ended = position.ended or why
        if position.handed >= 0:
            place = position.topic, position.index
            self._lost[place] = position
            before = self._unnamed.get(place)
            if before is None or before.told == before.extent:
                self._unnamed[place] = position

    def release(self, position: Position, why: str) -> None:
        """Note that a partition was given back, with all that was handed out of it finished."""
        self.lose(position, why)
        position.ended, position.told = why, position.extent

    def known(self) -> list[Position]:
        """Return the positions of the consumer's partitions, and of those that it has lost."""
        return [*self._positions.values(), *self._lost.values()]

    def _unsaid(self) -> list[Position]:
        """Return the lost positions with messages that no commit has named since they were handed out."""
        return [each for each in self._unnamed.values() if each.told != each.extent]

    def tell_lost(self) -> None:
        """Raise GenerationFenced, once, for what was handed out of lost partitions and is not committed; for a
        transaction that has it as a part and cannot commit.
        """
        self._check_told(self._unsaid(), "The transaction cannot be committed: roll it back")

    def _check_told(self, lost: Sequence[Position], state: str) -> None:
        """Raise for what was handed out of lost partitions and is not committed; the next time it is not told again."""
        if lost:
            for position in lost:
                position.told = position.extent
            raise errors.GenerationFenced(
                f"{_names(lost)} of group {self.group!r} went to others ({lost[0].ended}), with what was handed out of "
                f"it and not committed: they handle that again. {state}"
            )

    def _check_places(self, places: Iterable[object]) -> None:
        """Raise for lost partitions."""
        for lost in [self._lost[each] for each in places if each in self._lost]:
            raise errors.GenerationFenced(
                f"{_names([lost])} of group {self.group!r} is not this consumer's any more ({lost.ended}), and its "
                "messages are another's to handle; nothing was committed"
            )

    def check_messages(self, messages: Iterable[Message]) -> None:
        """Raise for messages of lost partitions, also if these are the consumer's again since."""
        messages = list(messages)
        self._check_places([(each.topic, each.partition) for each in messages])
        generations = {(each.topic, each.index): each.generation for each in self._positions.values()}
        for each in messages:
            generation = generations.get((each.topic, each.partition), each.generation)
            if each.generation != generation:
                raise errors.GenerationFenced(
                    f"offset {each.offset} of {each.topic}-{each.partition} was handed out under generation "
                    f"{each.generation} of the partition, and this consumer of group {self.group!r} has generation "
                    f"{generation}: another may have handled the message since; nothing was committed"
                )

    # -- commits --------------------------------------------------------------------------------------

    async def commit(self, what: Positions = None, joined: Joined | None = None) -> None:
        """Commit positions ``what`` of the group (None: :meth:`settlement`); returns once forced. Raises
        GenerationFenced.

        With ``joined`` they become part of that transaction instead, and move when it commits.
        """
        group = self._checked_group()
        if what is not None:
            if isinstance(what, Message):
                self.check_messages([what])
            elif isinstance(what, Mapping):
                self._check_places(what)
            await self._settle(group, positions_of(self._positions.values(), what), [], joined)
            return
        self.count()
        lost, here = self._unsaid(), list(self._positions.values())
        extents = [(each, each.extent) for each in here]
        offsets, settled = self._settlement(here if joined is None else self._with_unsaid())
        await self._settle(group, offsets, settled, joined)
        for position, extent in extents:
            position.told = extent
        if joined is None:
            self._check_told(lost, "What was handed out of other partitions is committed")
        else:
            self.tell_lost()

    async def done(self, what: Message | Sequence[Message], joined: Joined | None = None) -> None:
        """Finish these messages for the group, and no others; returns once forced, at once if they are finished later.
        ``joined`` is as in :meth:`commit`.
        """
        group, settled = self._checked_group(), self.finished(what)
        if self.later is None or joined is not None:
            await self._settle(group, [], settled, joined)
            return
        places = {(each.topic, each.index): each for each in self.known()}
        for message in messages_of(what):
            self.later(places[message.topic, message.partition], message.offset)

    def finished(self, what: Message | Sequence[Message]) -> list[Settled]:
        """Return what finishes these messages; raises WrongType, WrongValue, GenerationFenced for lost ones."""
        settled = finished_of(self.known(), what)
        self.check_messages([what] if isinstance(what, Message) else what)
        return settled

    def _checked_group(self) -> str:
        if self.group is None:
            raise without_group()
        return self.group

    async def _settle(
        self, group: str, offsets: list[PartitionOffset], settled: list[Settled], joined: Joined | None
    ) -> None:
        if joined is not None:
            await joined.add_offsets(group, offsets, settled)
            return
        core = self._core
        for some in requests_of(offsets):
            await core.request(CommitOffsets(core.correlation(), group, some), Done)
        for few in settling_requests(settled):
            await core.request(CommitOffsets(core.correlation(), group, [], settled=few), Done)
        self._on_done()

    def known_as(self, consumer: Finishes) -> None:
        """Let transactions of the connection find the consumer by what it has handed out."""
        if self.group is not None:
            self._core.consumers[consumer] = self


def _given(position: Position) -> OffsetSet:
    """Return the offsets of a position that were handed out, or were finished before, at or above its begin."""
    given = position.given.copy()
    given.difference_update(position.retrying)
    given.discard_below(position.floor(given))
    return given


def _names(positions: Iterable[Position]) -> str:
    return ", ".join(f"{each.topic}-{each.index}" for each in positions)
