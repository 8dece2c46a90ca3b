"""The hand-over of partitions that a group asks back: each is released once what was handed out of it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from txbroker import errors
from txbroker.client.consumer.commits import Commits
from txbroker.client.consumer.finishing import MOST_SAID, RELEASED, Finishing, Part
from txbroker.client.consumer.group_parts import MOST_MISSING
from txbroker.client.consumer.membership import Membership
from txbroker.client.consumer.notices import Notices
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Position
from txbroker.client.core.promise import Chore
from txbroker.wire.messages import MAX_RELEASED, Fetch, Fetched, FetchedPartition, Reader

MOST_BEHIND: Final = 500_000
"""How many offsets below the last one that was handed out are asked for; the broker takes a million."""


class Handover:
    """Releases partitions of a member. ``in_hand`` says of a partition whether messages of it are under way; if it is
    None, the broker is asked whether all that was handed out is finished.
    """

    def __init__(
        self,
        core: Core,
        options: ConsumerOptions,
        membership: Membership,
        positions: dict[int, Position],
        commits: Commits,
        finishing: Finishing | None,
    ) -> None:
        self.in_hand: Callable[[Position], bool] | None = None
        self._core = core
        self.notices = Notices(options.on_revoked, options.on_lost, self._asked_back)
        self._group = options.group or ""
        self._membership = membership
        self._positions = positions
        self._commits = commits
        self._finishing = finishing
        self._asking = Chore(self._ask)

    def look(self) -> None:
        """Release what can be released, and ask about the rest. It may be called at any time, also after an
        interrupt anywhere.
        """
        releasing = self._membership.releasing
        if not releasing:
            return
        self._commits.count()
        self._release([number for number in releasing if self._is_free(self._positions.get(number))])
        if releasing and self.in_hand is None:
            if not self._asking.is_under_way:
                self._asking.begin()
            self._asking.go_on()

    def close(self) -> None:
        """Ask no more."""
        self._asking.cancel()

    def _asked_back(self) -> list[Position]:
        """Return the partitions that are asked back, and of which messages may have been handed out."""
        return [self._positions[each] for each in self._membership.releasing if each in self._positions]

    def _is_free(self, position: Position | None) -> bool:
        if position is None:
            return True
        if not self.notices.may_release(position):
            return False
        if self.in_hand is not None:
            return not self.in_hand(position)
        return position.handed < 0 or (self._finishing is not None and not self._open(position))

    def _open(self, position: Position) -> OffsetSet:
        """Return the offsets that were handed out, and that the program is not known to be done with."""
        handed = position.handed_out()
        if self._finishing is not None:
            handed.difference_update(self._finishing.done(position))
        handed.discard_below(max(position.begin, handed.end - MOST_BEHIND))
        return handed

    def _release(self, numbers: Sequence[int]) -> None:
        """Release partitions with what is finished in them; some later, if that is more than one request takes."""
        released = []
        for number in numbers:
            position = self._positions.get(number)
            if position is not None:
                if not self._goes_along(position):
                    continue
                self._commits.release(position, RELEASED)
                self.notices.release(position)
                del self._positions[number]
            released.append(number)
        if released:
            self._membership.release(released)

    def _goes_along(self, position: Position) -> bool:
        """Have what is finished in a partition said with its release; return whether the next request has room for
        that.
        """
        if self._finishing is None or not (unsaid := self._finishing.unsaid(position)):
            return True
        finished, part = self._membership.finished, Part(position, unsaid)
        said = len(part.said.finished)
        if said > MOST_SAID:
            self._finishing.say()
            return False
        if position.number not in finished:
            carried = sum([len(each.said.finished) for each in finished.values()])
            if len(finished) >= MAX_RELEASED or carried + said > MOST_SAID:
                return False
        finished[position.number] = part
        return True

    async def _ask(self) -> None:
        found = [(each, self._open(each)) for each in self._asked_back() if self.notices.may_release(each)]
        self._release([each.number for each, handed in found if not handed])  # all that was handed out waits
        for some in self._requests([(each, handed) for each, handed in found if handed]):
            try:
                answer = await self._core.request(self._fetch(some), Fetched)
            except errors.TxBrokerError:
                return  # it is asked again when the caller comes again, and at each answer of the broker to the member
            for (position, handed), part in zip(some, answer.partitions, strict=True):
                if self._positions.get(position.number) is position and _is_finished(handed, part):
                    self._release([position.number])

    def _requests(
        self, wanted: Sequence[tuple[Position, OffsetSet]]
    ) -> Iterator[list[tuple[Position, OffsetSet]]]:
        """Yield these in lists, each as long as a fetch allows."""
        some: list[tuple[Position, OffsetSet]] = []
        room = MOST_MISSING
        for each in wanted:
            size = len(encode_offsets(each[1], each[1].first))
            if some and (size > room or len(some) == self._core.max_fetch_positions):
                yield some
                some, room = [], MOST_MISSING
            some.append(each)
            room -= size
        if some:
            yield some

    def _fetch(self, some: Sequence[tuple[Position, OffsetSet]]) -> Fetch:
        missing = [(each.number, encode_offsets(handed, handed.first), handed.first) for each, handed in some]
        reader = Reader(self._group, 0, [each.generation for each, _ in some], missing)
        positions = [(each.number, handed.end, handed.end) for each, handed in some]
        return Fetch(self._core.correlation(), positions, 1, 0, readers=[reader])


def _is_finished(handed: OffsetSet, part: FetchedPartition) -> bool:
    if part.error:
        return False  # the partition is another's, or is gone: the broker tells the member
    under_way = handed.copy()
    under_way.difference_update(decode_offsets(part.finished, handed.first))
    under_way.difference_update(
        decode_offsets(part.waiting, handed.first)
    )  # a prepared transaction holds them
    return not under_way
