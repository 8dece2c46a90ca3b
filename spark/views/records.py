"""``view=journal``: the records of the journal, as far as its files go back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from journal.check import Finding, walk_journal
from journal.records.access_secrets import without_secrets
from journal.records.record import AnyRecord
from journal.vfs.filesystem import OSFilesystem
from spark.source.checkpoints import newest_checkpoint
from spark.source.options import ReadOptions

SCHEMA = StructType(
    [
        StructField("lsn", LongType()),
        StructField("record", StringType()),
        StructField("partition_log", LongType()),
        StructField("bytes", LongType()),
        StructField("path", StringType()),
        StructField("position", LongType()),
        StructField("detail", StringType()),
        StructField("problem", StringType()),
    ]
)
"""``detail`` is JSON of the record's fields (``docs/file_format.md``), ``bytes`` those of its frames.

A place that cannot be read is a row with a ``problem`` and without a record.
"""


def tasks(options: ReadOptions) -> list[InputPartition]:
    """Return one task, because the chain of the files is followed."""
    newest_checkpoint(options.path)
    return [InputPartition(None)]


def rows(options: ReadOptions, task: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG001
    """Yield a row for each record, by LSN, each with its checksum proven."""
    for found in walk_journal(OSFilesystem(options.path)):
        if isinstance(found, Finding):
            yield None, None, None, None, found.path, found.position, None, found.problem
            continue
        record = found.record
        yield (
            found.lsn,
            type(record).__name__,
            getattr(record, "partition", None) or None,  # 0 if the messages went through an exchange
            len(found.data),
            found.path,
            found.position,
            detail_of(record),
            None,
        )


def detail_of(record: AnyRecord) -> str:
    """Return the fields of a record, as JSON, but for what a password is proven by and the key of the logins."""
    shown = without_secrets(record)
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    return msgspec.json.encode(fields, enc_hook=_other).decode()


def _other(value: Any) -> Any:
    if isinstance(value, memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"a record holds a {type(value).__name__}, for which there is no JSON")
