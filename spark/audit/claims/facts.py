"""Facts are the rows that the tasks of an audit pass on; tables and reports are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

BATCH: Final = 10_000


class What(StrEnum):
    """The kinds of facts."""

    VIOLATION = "violation"
    """Something is not as it was promised."""
    NOTICE = "notice"
    """Something worth knowing that is not wrong in itself."""
    CLAIM = "claim"
    """A claim: messages ``first`` to ``last`` of a log belong to a transaction or send, with count, bytes and
    checksum.
    """
    PIECE = "piece"
    """The part of a claim that was found in one slice, if it goes on in another."""
    SHIFT = "shift"
    """Claims of a slice that are fulfilled at other offsets, all moved alike: see :mod:`spark.audit.checks.shifts`."""
    EDGE = "edge"
    """The violation of a claim that would lie in another slice if it were moved as its neighbours are."""
    SHORT = "short"
    """A log that ends ``messages`` messages before the last decided one."""
    PROOF = "proof"
    """A number of messages of a log that are proven, by what ``kind`` says: see :class:`By`."""
    WINDOW = "window"
    """Messages and bytes of a log whose times are in the window that begins at ``first``.

    Its checksum says how many of them nobody claims.
    """
    LOG = "log"
    """The contents of a slice of a log."""
    ENTRY = "entry"
    """An outcome of the archive, or of the journal."""
    TURNED = "turned"
    """At ``lsn`` the archive was turned on or off, or its retention was changed."""
    GAP = "gap"
    """Records below ``lsn`` are missing in the journal, or cannot be read: nothing says what they decided."""
    END = "end"
    """A file of the journal takes a log on to offset ``last``."""


class By(StrEnum):
    """The proofs that a message is the one that was sent; the first that applies counts."""

    ARCHIVE = "archive"
    """The entry of its transaction in the outcome archive: place, count, bytes, checksum."""
    JOURNAL = "journal"
    """The record of its send, byte for byte, or of its transaction's commit: place and count."""
    CHECKPOINT = "checkpoint"
    """An outcome in the newest checkpoint: its transaction was placed there, with so many messages."""
    REPORTS = "reports"
    """A producer's report: its window of time has exactly the reported number of messages and bytes."""
    NOTHING = "nothing"
    """Its frame is sound and in its place; nothing says that it was ever sent."""


class Fact(NamedTuple):
    """A fact as a row. Offsets are inclusive; other meanings of a field are documented where the fact is made."""

    what: str
    kind: str = ""
    topic: str = ""
    partition: int = -1
    number: int = -1
    first: int = -1
    last: int = -1
    path: str = ""
    position: int = -1
    session: int = -1
    serial: int = -1
    xid: str = ""
    lsn: int = -1
    messages: int = 0
    bytes: int = 0
    checksum: int = 0
    text: str = ""
    slice: int = -1
    appended: int = -1
    """Of a claim, or of what was found of it: see :func:`sum_of_times`. -1: unknown."""


def sum_of_times(messages: int, appended: int, before: int = 0) -> int:
    """Return the sum of the append times of messages that were appended together, and of others ``before``.

    Of two parts of a claim it is the sum of theirs. It is bounded to what fits into a column.
    """
    return (before + messages * appended) & _MOST


_MOST: Final = (1 << 63) - 1
_KINDS: Final[dict[str, tuple[Any, pa.DataType]]] = {
    name: (
        (StringType(), pa.string())
        if name in ("what", "kind", "topic", "path", "xid", "text")
        else (IntegerType(), pa.int32())
        if name in ("partition", "slice")
        else (LongType(), pa.int64())
    )
    for name in Fact._fields
}
SCHEMA: Final = StructType([StructField(name, kind[0]) for name, kind in _KINDS.items()])
ARROW: Final = pa.schema([(name, kind[1]) for name, kind in _KINDS.items()])
PLACE: Final = (
    "kind",
    "topic",
    "partition",
    "first",
    "last",
    "session",
    "serial",
    "xid",
    "path",
    "position",
    "text",
)
"""The columns of a finding."""


def batches(facts: Iterator[Fact]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the form that Spark needs, some thousand at a time."""
    rows: list[Fact] = []
    for fact in facts:
        rows.append(fact)
        if len(rows) == BATCH:
            yield _batch(rows)
            rows = []
    yield _batch(rows)


def _batch(rows: list[Fact]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def facts(incoming: Iterator[pa.RecordBatch]) -> Iterator[Fact]:
    """Yield the facts in the batches that Spark gives to a task."""
    for batch in incoming:
        yield from map(
            Fact._make, zip(*(batch.column(name).to_pylist() for name in Fact._fields), strict=True)
        )
