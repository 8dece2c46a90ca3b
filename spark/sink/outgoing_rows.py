"""Arrow batches become messages: the columns that a frame needs to be written, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from journal.message_headers import Headers
from spark.sink.register import Extent
from spark.sink.row_frames import Columns
from txbroker import errors

_TEXT: Final = (BinaryType, StringType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_TIMES: Final = (TimestampType, TimestampNTZType)
_OF_READERS: Final[dict[str, type[DataType]]] = {
    "offset": LongType,
    "appended": TimestampType,
    "timestampType": IntegerType,
    "transaction": StringType,
    "xid": StringType,
}
"""Columns of this source and of Kafka's that a message cannot have: ignored, so that rows can be written as read."""
_KNOWN: Final = "value, key, headers, topic, partition, timestamp"


def check_schema(schema: StructType, topic: str) -> None:
    """Raise InvalidSetting unless rows of this schema can be written; ``topic`` is the option, "" if it is not set."""
    for field in schema.fields:
        expected = _expected(field.name, field.dataType)
        if expected:
            raise errors.InvalidSetting(
                f"column {field.name!r} is {field.dataType.simpleString()}, and {expected}; nothing was written"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise errors.InvalidSetting(
            f"the frame has columns {names} and no 'value', which a message needs; nothing was written. "
            f"Known are {_KNOWN}"
        )
    if "topic" not in names and not topic:
        raise errors.InvalidSetting(
            "neither the option 'topic' nor a column 'topic' says where the rows go; nothing was written"
        )


def _expected(name: str, kind: DataType) -> str:
    """Return what is wrong with a column, "" if nothing is."""
    match name:
        case "value" | "key":
            return "" if isinstance(kind, _TEXT) else "it must be binary or string (cast it, or use to_json)"
        case "topic":
            return "" if isinstance(kind, StringType) else "it must be string"
        case "partition":
            return "" if isinstance(kind, _WHOLE) else "it must be a whole number"
        case "timestamp":
            return "" if isinstance(kind, _TIMES) else "it must be a timestamp"
        case "headers":
            return "" if _are_headers(kind) else "it must be array<struct<key:string,value:binary>> or a map"
    if name in _OF_READERS:
        kind_read = _OF_READERS[name]()
        if kind == kind_read:
            return ""
        return f"only as {kind_read.simpleString()}, as it is read, that name is passed over: drop the column"
    return f"no part of a message has that name (known are {_KNOWN}): select what is to be written"


def _are_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _TEXT)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        set(fields) == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], _TEXT)
    )


def messages(batch: pa.RecordBatch, topic: str) -> Iterator[Columns]:
    """Yield the messages of a batch, by topic in order of first appearance, their order within it kept.

    ``topic`` wins over a column.
    """
    for each in topics_of(batch, topic):
        yield _columns(batch if topic else batch.filter(pc.equal(batch.column("topic"), each)), each)


def topics_of(batch: pa.RecordBatch, topic: str) -> list[str]:
    """Return the topics of a batch's rows, in order of first appearance; ``topic`` wins over a column."""
    if topic:
        return [topic] if batch.num_rows else []
    topics = batch.column("topic")
    if topics.null_count:
        raise errors.InvalidSetting(
            f"{topics.null_count} rows of a batch have no topic; none of this write will be seen"
        )
    found: list[str] = pc.unique(topics).to_pylist()
    return found


def extent(batches: Iterable[pa.RecordBatch], topic: str) -> Extent:
    """Return how many rows they are, and the topics that they would go to; the bytes are not counted."""
    rows, topics = 0, set[str]()
    for batch in batches:
        rows += batch.num_rows
        topics.update(topics_of(batch, topic))
    return Extent(rows, 0, frozenset(topics))


def _columns(batch: pa.RecordBatch, topic: str) -> Columns:
    there = set(batch.schema.names)
    keys = _binary(batch.column("key")) if "key" in there else None
    headers = _headers(batch.column("headers")) if "headers" in there else None
    partitions = batch.column("partition").cast(pa.int64()) if "partition" in there else None
    size = sum(batch.column(name).nbytes for name in ("value", "key", "headers") if name in there)
    times = _times(batch.column("timestamp")) if "timestamp" in there else None
    return Columns(topic, _binary(batch.column("value")), keys, headers, partitions, times, size)


def _binary(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.cast(pa.binary())
    return column.cast(pa.large_binary())


def _times(column: pa.Array) -> pa.Array:
    """Return µs since 1970 UTC."""
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _headers(column: pa.Array) -> list[Headers | None]:
    is_map = pa.types.is_map(column.type)
    return [None if each is None else _header(each, is_map) for each in column.to_pylist()]


def _header(pairs: Sequence[Any], is_map: bool) -> Headers:
    named = pairs if is_map else [(each["key"], each["value"]) for each in pairs]
    if any(name is None or value is None for name, value in named):
        raise errors.InvalidSetting(
            "a header of a message has null as its name or value; none of this write will be seen"
        )
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in named)
