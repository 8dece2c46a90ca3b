"""The model of topics: they are there once created, gone once deleted, and their partitions' numbers are never used
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, OPEN, Intent, Model


@dataclass(eq=False)
class Topic:
    """A topic that was asked for, under that id, with at most so many partitions by now.

    ``retained``: its logs may start later some day.
    """

    name: str
    retained: bool
    created: Intent
    most: int
    id: bytes = b""
    deleted: Intent | None = None
    partitions: list[int] | None = None

    @property
    def gone(self) -> bool:
        """Whether it is known to be deleted."""
        return self.deleted is not None and self.deleted.state == DONE


class TopicModel:
    """All topics, and which partition is whose."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.topics: list[Topic] = []
        self.homes: dict[int, Topic] = {}
        self.dead: set[str] = set()

    def handles(self, partition: int) -> None:
        """A member says that it handles messages of a partition: when it is lost, they have failed once.

        Before retention removes such a message, the broker moves it to the topic's dead letters, which are not judged.
        """
        self.dead.add(f"{self.homes[partition].name}.dead")

    def most_dead_partitions(self) -> int:
        """How many partitions the topics of dead letters have at most, together."""
        return sum(topic.most for topic in self.topics if f"{topic.name}.dead" in self.dead)

    def made(self, topic: Topic, numbers: list[int]) -> None:
        """The topic is there, with these partitions; or it has got more since."""
        self.model.done(topic.created)
        known = topic.partitions or []
        both = min(len(known), len(numbers))
        require(known[:both] == numbers[:both], f"{topic.name} has {known}", numbers)
        require(len(numbers) <= topic.most, f"{topic.name} has at most {topic.most} partitions", numbers)
        for number in numbers[both:]:
            self.model.fresh("partition", number)
            self.homes[number] = topic
        topic.partitions = known + numbers[both:]

    def named(self, name: str, found: bytes) -> None:
        """The topic of that name is there, with that id."""
        ids = [topic.id for topic in self.topics if topic.name == name and not topic.gone]
        require(found in ids, f"the id of topic {name} is one of {ids}", found)

    def deleted_again(self, topic: Topic) -> None:
        """The deletion of a topic that was known to be deleted has been carried out once more."""
        require(
            not topic.gone,
            f"topic {topic.name}, {topic.id!r}, is deleted once",
            "another of its name is, too",
        )

    def not_made(self, topic: Topic) -> None:
        """It was refused, or is not there after all."""
        self.topics = [other for other in self.topics if other is not topic]

    def read(self, partition: int, start: int, since: int) -> None:
        """Somebody who asked at ``since`` could read it, from ``start`` on."""
        topic = self.homes[partition]
        require(not start or topic.retained, f"log {partition} keeps all", f"it starts at {start}")
        deleted = topic.deleted
        gone = deleted is not None and deleted.state == DONE and deleted.ended_at < since
        require(not gone, f"log {partition} is deleted", "it is read")

    def settle(self, found: Mapping[str, list[int]]) -> set[int]:
        """Nothing is under way, and these topics are there; returns the partitions that are."""
        for topic in [topic for topic in self.topics if not topic.gone]:
            numbers = found.get(topic.name)
            if numbers is not None:
                known = topic.partitions or []
                require(len(numbers) >= len(known), f"{topic.name} has {known}", numbers)
                self.made(topic, numbers)
                if topic.deleted is not None:
                    self.model.void(topic.deleted)
                    topic.deleted = None
            elif topic.deleted is not None and topic.deleted.state == OPEN:
                self.model.done(topic.deleted)
            else:
                self.model.void(topic.created)
                self.not_made(topic)
        known = sorted(topic.name for topic in self.topics if topic.deleted is None)
        require(sorted(found) == known, f"topics are {known}", sorted(found))
        return {number for numbers in found.values() for number in numbers}
