"""Which partitions belong to which topic, for folds that keep something per partition.

A record that deletes a topic has only its name, and a fold cannot ask the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable

from journal.formats.record import TopicCreated, TopicDeleted


class PartitionRanges:
    """The partition numbers of each topic, folded from the records that make and delete topics."""

    __slots__ = ("_topics",)

    def __init__(self, rows: Iterable[Iterable[object]] = ()) -> None:
        self._topics: dict[str, range] = {}
        for topic, first, end in rows:
            assert isinstance(topic, str)
            assert isinstance(first, int)
            assert isinstance(end, int)
            self._topics[topic] = range(first, end)

    def create(self, record: TopicCreated) -> None:
        """Take in a topic."""
        assert record.topic not in self._topics, f"topic {record.topic} was created twice"
        self._topics[record.topic] = range(record.first_partition, record.first_partition + record.partitions)

    def delete(self, record: TopicDeleted) -> range:
        """Take out a topic; return the numbers of the partitions that are gone with it."""
        return self._topics.pop(record.topic)

    def rows(self) -> list[list[object]]:
        """[topic, first partition, end] of each, for a snapshot."""
        return [[topic, each.start, each.stop] for topic, each in self._topics.items()]
