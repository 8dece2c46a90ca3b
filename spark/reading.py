"""Reading in a task: the messages of its parts, checked, as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark.columns import Columns
from spark.files import Directory
from spark.heads import Heads, UnsoundBlock, read_heads
from spark.live import Broker
from spark.logs import Logs, Losses, MessagesLost, Slice
from spark.options import ReadOptions
from spark.pushdown import Wanted

MOST_ROWS = 1 << 16
"""In one batch: what Spark holds of it at a time is bounded also where messages are small."""


def open_logs(options: ReadOptions) -> Logs:
    """The data directory or the broker that the options name."""
    if options.broker:
        return Broker(options.broker, options.timeout)
    return Directory(options.path)


def read_parts(
    options: ReadOptions, names: Sequence[str], wanted: Wanted, parts: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    """The batches of a task."""
    logs = open_logs(options)
    try:
        for part in parts:
            columns = Columns(names, part.log.topic, part.log.index)
            for heads in heads_of(logs, part, Losses(options.fail_on_data_loss)):
                chosen = wanted.rows(heads)
                for start in range(0, len(chosen.offset), MOST_ROWS):
                    yield columns.batch(chosen.chosen(slice(start, start + MOST_ROWS)))
    finally:
        logs.close()


def heads_of(logs: Logs, part: Slice, losses: Losses) -> Iterator[Heads]:
    """The messages of a part, a block at a time, in order and without a gap; what is damaged or gone is a loss."""
    cursor = logs.cursor(part)
    offset = part.first
    try:
        while offset < part.end:
            try:
                data, first = cursor.read(offset)
            except MessagesLost as error:
                losses.take(error)
                offset = error.last + 1
                continue
            damage: MessagesLost | None = None
            try:
                heads, taken, after = read_heads(data, first)
            except UnsoundBlock as fault:
                damage = cursor.damaged(fault)
                losses.take(damage)
                heads, taken, after = read_heads(data[: fault.position], first)
            if damage is None and not taken:
                damage = cursor.damaged(
                    UnsoundBlock(f"no frame of offset {first} is there", 0, max(first, offset))
                )
                losses.take(damage)
            if len((wanted := _between(heads, offset, part.end)).offset):
                yield wanted
            if damage is None:
                cursor.advance(taken, after)
                offset = after
            else:
                offset = max(after, damage.last + 1)
    finally:
        cursor.close()


def _between(heads: Heads, first: int, end: int) -> Heads:
    """The messages from offset ``first`` to ``end``, exclusive."""
    low, high = np.searchsorted(heads.offset, [first, end])
    if low == 0 and high == len(heads.offset):
        return heads
    return heads.chosen(slice(int(low), int(high)))
