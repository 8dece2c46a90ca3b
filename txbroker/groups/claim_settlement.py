"""What the claim of a partition for a member settles of the work of those that had it before.

A member that gives a partition back says what it has finished, and one that was lost had begun messages: these were
attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from twisted.logger import Logger

from journal.folds.groups import GroupsFold
from journal.folds.settlement import Settlement
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled, Unfinished
from txbroker.errors import RequestRefused, TooFarAhead

if TYPE_CHECKING:
    from journal.engine.engine import Engine

Recorded = Callable[[Sequence[GroupPositions]], list[GroupPositions]]
Check = Callable[[Iterable[GroupPositions]], object]

ALONE = "its consumer was lost while it handled a batch with this message"
ATTEMPT = "its consumer was lost while it handled this message"


class LostWork(NamedTuple):
    """Messages of a partition that a lost member had begun: (offset, attempts before); ``who`` it was, for people."""

    offsets: Sequence[tuple[int, int]]
    together: bool
    who: str


class ClaimSettlement:
    """Says what a claim settles. ``recorded`` and ``check`` judge what a group settles, as a request is judged."""

    log = Logger()

    def __init__(self, engine: Engine, groups: GroupsFold, recorded: Recorded, check: Check) -> None:
        self._engine = engine
        self._groups = groups
        self._recorded = recorded
        self._check = check

    def finished(self, name: str, wanted: Settled) -> Settled | None:
        """Return what the claim of a partition says of what was finished in it by who gives it back: if some of it is
        too far ahead, the lower part. None if it cannot be settled: it comes again then.
        """
        offsets = decode_offsets(wanted.finished, wanted.base)
        while len(offsets) > 1 and self._is_too_far(name, wanted):
            offsets = offsets.within(offsets.first, (offsets.first + offsets.end) // 2)
            wanted = replace(wanted, finished=encode_offsets(offsets, wanted.base))
        return self._judged(name, wanted, "what was finished before the partition was given back comes again")

    def _is_too_far(self, name: str, wanted: Settled) -> bool:
        try:
            self._check(self._recorded([GroupPositions(name, b"", [], [wanted])]))
        except TooFarAhead:
            return True
        except RequestRefused:
            return False
        return False

    def attempts(self, name: str, number: int, works: Iterable[LostWork]) -> Settled | None:
        """Return what the claim of a partition says of what was begun in it; None if there is nothing to say. Its
        generation is that of the claim before.

        What is finished, and what a prepared transaction holds, counts no attempt; nor does what was reported as failed
        since: its number of attempts says so, as of a request that comes again. If the rest cannot be settled now,
        because too many messages wait already, nothing is counted.
        """
        group = self._groups.find(name)
        position, store = group.position(number), self._engine.catalog.stores.get(number)
        if position is None or store is None:
            return None
        kept = group.settlements.get(number) or Settlement()
        held = self._groups.held(name, number)
        taken = OffsetSet() if held is None else held.offsets
        lowest = max(position, store.start_offset, 0 if held is None else held.below)
        retried: dict[int, Retried] = {}
        alone: dict[int, Unfinished] = {}
        for work in works:
            for offset, attempts in work.offsets:
                known = kept.unfinished.get(offset)
                if not lowest <= offset < store.high_watermark or offset in kept.finished or offset in taken:
                    continue
                if not work.together:
                    retried[offset] = Retried(offset, attempts, reason=f"{ATTEMPT}: {work.who}")
                elif known is None:
                    alone[offset] = Unfinished(offset, reason=f"{ALONE}: {work.who}")
        unfinished = [each for offset, each in alone.items() if offset not in retried]
        wanted = Settled(number, group.generation(number), position, unfinished=unfinished)
        if not retried and not unfinished:
            return None
        wanted = replace(wanted, retried=list(retried.values()))
        return self._judged(name, wanted, "what a lost member had begun counts as no attempt")

    def _judged(self, name: str, wanted: Settled, otherwise: str) -> Settled | None:
        try:
            recorded = self._recorded([GroupPositions(name, b"", [], [wanted])])
            self._check(recorded)
            self._engine.transactions.check_unheld(recorded)
        except RequestRefused as error:
            self.log.warn("group {group}: {otherwise}: {error}", group=name, otherwise=otherwise, error=error)
            return None
        return recorded[0].settled[0]
