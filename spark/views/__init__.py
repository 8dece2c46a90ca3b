"""Views beside messages: transactions, the journal's records, segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from journal.errors import InvalidSetting
from spark.source.options import NOTHING_READ, ReadOptions, View
from spark.views import records, segments, transactions


class Table(Protocol):
    """A module with one of these views."""

    SCHEMA: StructType

    def tasks(self, options: ReadOptions) -> list[InputPartition]:
        """Return the parts to be read."""

    def rows(self, options: ReadOptions, task: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a part, their columns as in the schema."""


TABLES: dict[View, Table] = {
    View.TRANSACTIONS: transactions,
    View.JOURNAL: records,
    View.SEGMENTS: segments,
}


def view_schema(options: ReadOptions) -> StructType:
    """Return the columns of a view. Raises :class:`journal.errors.InvalidSetting` for options that it does not have."""
    given = {
        "assign": options.assigned,
        "subscribe": options.topics and options.assigned is None and options.view is not View.SEGMENTS,
        "subscribePattern": options.pattern and options.view is not View.SEGMENTS,
        "startingOffsetsByTimestamp": options.starting_times,
        "endingOffsetsByTimestamp": options.ending_times,
        "group": options.group,
        "columnsAs": options.as_kafka,
        "startingOffsets": options.starting,
        "endingOffsets": options.ending,
        "startingTimestamp": options.starting_time is not None,
        "endingTimestamp": options.ending_time is not None,
        "columns": options.columns,
        "where": options.where,
        "clockSkew": options.clock_skew is not None,
    }
    if meant := [name for name, value in given.items() if value]:
        raise InvalidSetting(
            f"view={options.view.value} has no option {meant[0]}: that is for messages; {NOTHING_READ}. Filter the "
            "view's rows with .where()"
        )
    if options.broker and options.view is not View.TRANSACTIONS:
        raise InvalidSetting(
            f"view={options.view.value} shows files: it needs the data directory (.load(PATH)), not a broker; "
            f"{NOTHING_READ}"
        )
    return TABLES[options.view].SCHEMA


class ViewReader(DataSourceReader):
    """Reads a view. A schema given by the user selects columns."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        full = view_schema(options)
        for field in schema.fields:
            if field.name not in full.names or full[field.name].dataType != field.dataType:
                raise InvalidSetting(
                    f"view={options.view.value} has no column {field.simpleString()}; there are "
                    f"{', '.join(each.simpleString() for each in full.fields)}; {NOTHING_READ}"
                )
        self._places = [full.names.index(name) for name in schema.names]

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return TABLES[self._options.view].tasks(self._options)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one task."""
        for row in TABLES[self._options.view].rows(self._options, partition):
            yield tuple(row[place] for place in self._places)
