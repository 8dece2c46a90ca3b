"""What audits pass between tasks and write down: one kind of row for all, of which tables and reports are made."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

BATCH: Final = 10_000


class What(StrEnum):
    """What a row says."""

    VIOLATION = "violation"
    """Something is not as it was promised."""
    NOTICE = "notice"
    """Something that is to be known, and wrong in itself."""
    CLAIM = "claim"
    """Who says that messages ``first`` to ``last`` of a log are his, with count, bytes and checksum."""
    PIECE = "piece"
    """What was found of a claim that goes on in another slice."""
    SHIFT = "shift"
    """Claims of a slice that are fulfilled at other offsets, all moved alike: see :mod:`spark.audit.checks.shifts`."""
    EDGE = "edge"
    """What is wrong with a claim that would lie in another slice if it were moved as its neighbours are."""
    SHORT = "short"
    """A log ends before messages that were decided, by so many as ``messages``."""
    PROOF = "proof"
    """So many messages of a log are proven, by what ``kind`` says: see :class:`By`."""
    WINDOW = "window"
    """Messages and bytes of a log whose times are in the window that begins at ``first``.

    Its checksum says how many of them nobody claims.
    """
    LOG = "log"
    """What a slice of a log held."""
    ENTRY = "entry"
    """An outcome of the archive, or of the journal."""
    TURNED = "turned"
    """The archive was turned on or off at ``lsn``, or is kept otherwise since."""
    GAP = "gap"
    """Records below ``lsn`` are missing in the journal, or cannot be read: what they decided nobody says."""
    END = "end"
    """By a file of the journal a log goes on to offset ``last``."""


class By(StrEnum):
    """What proves that a message is the one that was sent; the first of these that does counts."""

    ARCHIVE = "archive"
    """Its transaction's entry in the outcome archive: place, count, bytes, checksum."""
    JOURNAL = "journal"
    """The record of its send, byte for byte, or of its transaction's commit: place and count."""
    CHECKPOINT = "checkpoint"
    """An outcome in the newest checkpoint: that its transaction was placed there, with so many messages."""
    REPORTS = "reports"
    """A producer's count: its window of time has just as many messages and bytes as were reported."""
    NOTHING = "nothing"
    """It is sound and in its place; that it was ever sent, nobody says."""


class Fact(NamedTuple):
    """A row. Offsets are inclusive; what a field means beside that is said where the fact is made."""

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
    """The rows as Spark wants them, some thousand at a time."""
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
    """The rows of what Spark hands to a task."""
    for batch in incoming:
        yield from map(
            Fact._make, zip(*(batch.column(name).to_pylist() for name in Fact._fields), strict=True)
        )
