"""The reading of a task: the messages of its parts as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark.source.archive import checked_archive, origins
from spark.source.columns import ORIGIN, Columns
from spark.source.files import Directory
from spark.source.live import Broker
from spark.source.logs import Logs, Losses, Slice
from spark.source.messages import heads_of
from spark.source.options import ReadOptions
from spark.source.pushdown import Wanted

MOST_ROWS = 1 << 16
"""The messages of one batch, so that Spark's memory for it is bounded also if messages are small."""


def open_logs(options: ReadOptions) -> Logs:
    """Return the data directory or the broker that the options name."""
    if options.broker:
        return Broker(options.broker, options.timeout)
    return Directory(options.path)


def read_parts(
    options: ReadOptions, names: Sequence[str], wanted: Wanted, parts: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task."""
    logs, losses = open_logs(options), Losses(options.fail_on_data_loss)
    try:
        archive = checked_archive(logs, options.place) if parts and not ORIGIN.isdisjoint(names) else None
        for part in parts:
            came = None if archive is None else origins(logs, archive, part, losses)
            columns = Columns(names, part.log.topic, part.log.index, came)
            for heads in heads_of(logs, part, losses):
                chosen = wanted.rows(heads)
                for start in range(0, len(chosen.offset), MOST_ROWS):
                    yield columns.batch(chosen.chosen(slice(start, start + MOST_ROWS)))
    finally:
        logs.close()
