"""The positions of messages in their files, for findings that know only an offset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.directory import Directory
from spark.audit.claims.facts import SCHEMA, Fact, batches, facts
from spark.audit.claims.frames import Frames, walk
from spark.audit.claims.slices import Slice, SliceMap


def placed(findings: DataFrame, directory: Directory) -> DataFrame:
    """Return the same findings with the log's number, file and position of offset ``first``, where there is one.

    Each log is walked by one task, once, and only the slices that hold such an offset.
    """
    root, slices = directory.root, SliceMap(directory.slices)
    numbers = {(store.topic, store.index): store.number for store in directory.checkpoint.stores}

    def work(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem = OSFilesystem(root)
        yield from batches(_placed(filesystem, facts(incoming), slices, numbers))

    names = [field.name for field in SCHEMA.fields]
    ordered = (
        findings.select(names).repartition("partition").sortWithinPartitions("topic", "partition", "first")
    )
    return ordered.mapInArrow(work, SCHEMA)


def _placed(
    filesystem: OSFilesystem, rows: Iterator[Fact], slices: SliceMap, numbers: dict[tuple[str, int], int]
) -> Iterator[Fact]:
    def holding(row: Fact) -> Slice | None:
        number = numbers.get((row.topic, row.partition), -1)
        return next(iter(slices.holding(number, row.first, row.first + 1)), None)

    for part, mine in groupby(rows, holding):
        if part is None:
            yield from mine
        else:
            yield from _within(filesystem, part, mine)


def _within(filesystem: OSFilesystem, part: Slice, rows: Iterator[Fact]) -> Iterator[Fact]:
    """Return rows of one slice, ascending by offset, with positions; in damage a row gets only the file."""
    walked = (each for each in walk(filesystem, part) if isinstance(each, Frames))
    frames = next(walked, None)
    for row in rows:
        while frames is not None and int(frames.offset[-1] + frames.held[-1]) <= row.first:
            frames = next(walked, None)
        row = row._replace(number=part.number, path=part.path)
        if frames is not None and int(frames.offset[0]) <= row.first:
            at = int(np.searchsorted(frames.offset, row.first, "right")) - 1
            row = row._replace(position=frames.at + int(frames.start[at]))
        yield row
