"""The model of members: a generation of a partition is one member's, and what is done by messages is done once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tests.simulation.model.group_model import Key
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, NEVER, VOID, Intent, Model


class Told(NamedTuple):
    """Somebody was told that a partition is claimed with this generation, or a higher one: when asked, and answered."""

    generation: int
    asked: int
    answered: int


class Work(NamedTuple):
    """What an intent finishes for a group in a partition, as the member of which generation, and when it asked first
    for what is judged by the generation.
    """

    key: Key
    generation: int
    offsets: list[int]
    asked: int


class MemberModel:
    """Claims of members as they were told of, and who has finished which offset of which group."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.owners: dict[tuple[Key, int], str] = {}
        self.claims: dict[Key, list[Told]] = defaultdict(list)
        self.works: dict[Intent, list[Work]] = defaultdict(list)
        self.named: dict[Key, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.finishers: dict[Key, dict[int, list[Intent]]] = defaultdict(lambda: defaultdict(list))

    def begins_with(self, key: Key, offset: int, member: int) -> None:
        """A member says that it handles a message, by itself."""
        self.named[key][offset].add(member)

    def tried(self, key: Key, offset: int, attempts: int) -> None:
        """A message was said to have been tried so often: at most once by each that was lost with it."""
        most = len(self.named[key][offset])
        require(attempts <= most, f"at most {most} members handled offset {offset} of {key}", attempts)

    # -- whose partitions are -------------------------------------------------------------------------

    def assigned(self, key: Key, generation: int, member: str, since: int) -> None:
        """A member that asked at ``since`` was told that a partition is its own."""
        owner = self.owners.setdefault((key, generation), member)
        require(owner == member, f"generation {generation} of {key} is {owner}'s", member)
        self._is_newest(key, generation, since, f"{member} has it")
        self.claims[key].append(Told(generation, since, self.model.now))

    def fenced(self, key: Key, generation: int, since: int) -> None:
        """Somebody who asked at ``since`` was told that this generation is not the last one."""
        self.claims[key].append(Told(generation + 1, since, self.model.now))

    def stands(self, key: Key, generation: int, since: int) -> None:
        """A partition was said to be claimed with this generation, to one who asked at ``since``."""
        self._is_newest(key, generation, since, "it is said to be the last one")

    def _is_newest(self, key: Key, generation: int, since: int, found: str) -> None:
        newest = max((each.generation for each in self.claims[key] if each.answered < since), default=0)
        require(
            generation >= newest,
            f"{key} is claimed with {newest} or more",
            f"generation {generation}: {found}",
        )

    # -- what they finish -------------------------------------------------------------------------------

    def work_with(self, intent: Intent, key: Key, generation: int, offsets: list[int]) -> None:
        """If the intent happens, these offsets are finished for a group; it is asked for next."""
        self.works[intent].append(Work(key, generation, offsets, self.model.now + 1))
        for offset in offsets:
            self.finishers[key][offset].append(intent)

    def ends(self, intent: Intent) -> None:
        """What it finishes is judged by its generation now, if nobody has asked for that before."""
        if not intent.asked:
            self.works[intent] = [work._replace(asked=self.model.now + 1) for work in self.works[intent]]

    def accepted(self, intent: Intent) -> None:
        """It has happened, or was prepared: nobody was told of a newer claim before it was asked for."""
        for work in self.works[intent]:
            self._is_newest(work.key, work.generation, work.asked, f"{intent.name} goes")

    def begins(self, key: Key, position: int, retained: bool, since: int) -> None:
        """A group's position was read, by one who asked at ``since``: the lowest offset that is not finished."""
        for offset in () if retained else range(position):
            self._may_be_finished(key, offset, f"the position is {position}")
        self._is_unfinished(key, position, since)

    def read(
        self, key: Key, offsets: Iterable[int], finished: Collection[int], waiting: Collection[int], retained: bool,
        since: int,
    ) -> None:  # fmt: skip
        """Somebody who asked at ``since`` was told which of these offsets are finished, and which wait.

        What retention has removed of a ``retained`` log is finished without anybody.
        """
        for offset in offsets:
            if offset in finished:
                if not retained:
                    self._may_be_finished(key, offset, "it is said to be finished")
            elif offset not in waiting:
                self._is_unfinished(key, offset, since)

    def _may_be_finished(self, key: Key, offset: int, found: str) -> None:
        may = [one for one in self.finishers[key][offset] if one.state != VOID and one.asked]
        require(may, f"somebody has asked to finish offset {offset} of {key}", f"nobody has, and {found}")

    def _is_unfinished(self, key: Key, offset: int, since: int) -> None:
        done = [
            one.name
            for one in self.finishers[key].get(offset, ())
            if one.state == DONE and one.ended_at < since
        ]
        require(not done, f"offset {offset} of {key} is finished by {done}", "it is unfinished")

    # -- the whole ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """After all was read: no message has had two effects, and what has one was asked for in time."""
        for key, offsets in self.finishers.items():
            for offset, intents in offsets.items():
                done = [one.name for one in intents if one.state == DONE]
                require(len(done) < 2, f"offset {offset} of {key} is finished once", done)
        for intent in self.works:
            if intent.state == DONE or (intent.prepared_at < NEVER and intent.state != VOID):
                self.accepted(intent)

    def unfinished(self, key: Key, offsets: Iterable[int]) -> list[int]:
        """Return the offsets that nobody has finished, and nobody may have whose answer was lost."""
        found = self.finishers[key]
        return [
            offset
            for offset in offsets
            if not any(one.state == DONE or (one.vague and one.state != VOID) for one in found[offset])
        ]
