"""The partitions of each topic, for folds that keep something per partition.

A record that deletes a topic has only its name, and a fold cannot ask the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable

from journal.formats.record import TopicCreated, TopicDeleted

RangeRow = tuple[str, int, int]
"""Topic, first partition, end."""


class PartitionRanges:
    """The partition numbers of each topic, folded from the records that make and delete topics."""

    __slots__ = ("_topics",)

    def __init__(self, rows: Iterable[RangeRow] = ()) -> None:
        self._topics = {topic: range(first, end) for topic, first, end in rows}

    def create(self, record: TopicCreated) -> None:
        """Add a topic."""
        assert record.topic not in self._topics, f"topic {record.topic} was created twice"
        self._topics[record.topic] = range(record.first_partition, record.first_partition + record.partitions)

    def delete(self, record: TopicDeleted) -> range:
        """Remove a topic; return the numbers of its partitions."""
        return self._topics.pop(record.topic)

    def rows(self) -> list[RangeRow]:
        """Return a row for each topic, for a snapshot."""
        return [(topic, each.start, each.stop) for topic, each in self._topics.items()]
