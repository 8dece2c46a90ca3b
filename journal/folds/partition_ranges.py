"""The partitions of each topic, for folds that keep something per partition.

A record that deletes a topic has only its name, and a fold cannot ask the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable

from journal.records.record import TopicAltered, TopicCreated, TopicDeleted
from journal.records.transient import is_transient

RangeRow = tuple[str, int, int]
"""Topic, first partition, end. A topic has one for its creation, and one for each time that it got more partitions."""


class PartitionRanges:
    """The partition numbers of each topic, folded from the records that make, enlarge and delete topics."""

    __slots__ = ("_topics",)

    def __init__(self, rows: Iterable[RangeRow] = ()) -> None:
        self._topics: dict[str, list[range]] = {}
        for topic, first, end in rows:
            self._topics.setdefault(topic, []).append(range(first, end))

    def create(self, record: TopicCreated) -> None:
        """Add a topic."""
        assert record.topic not in self._topics, f"topic {record.topic} was created twice"
        self._topics[record.topic] = [record.added.numbers]

    def alter(self, record: TopicAltered) -> None:
        """Add the new partitions of a topic, if there are any."""
        if record.added is not None:
            self._topics[record.topic].append(record.added.numbers)

    def delete(self, record: TopicDeleted) -> frozenset[int]:
        """Remove a topic; return the numbers of its partitions."""
        return frozenset().union(*self._topics.pop(record.topic))

    def rows(self) -> list[RangeRow]:
        """Return the rows of each topic, for a snapshot; those of transient queues are in none."""
        return [
            (topic, each.start, each.stop)
            for topic, ranges in self._topics.items()
            for each in ranges
            if not is_transient(each.start)
        ]
