"""The exact search for a log's first message with a time or a later one: the index gives a start, the frames decide."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from journal.formats.index import MAX_GAP
from spark.source.logs import Log, Logs, Losses, Slice
from spark.source.messages import heads_of


def first_since(logs: Logs, log: Log, time: int, skew: int, losses: Losses) -> int | None:
    """Return the lowest offset whose message has the time ``time`` (the sender's, µs) or a later one; None if none has.

    A sender's clock must not be ahead of the broker's by more than ``skew`` µs: messages appended before ``time`` less
    ``skew`` are not read. All later ones are, until one is found.
    """
    offset, size = logs.offset_for_time(log, time - skew, late=False), MAX_GAP
    while offset < log.end:
        with closing(heads_of(logs, Slice(log, offset, log.end, size), losses)) as blocks:
            heads = next(blocks, None)
        if heads is None:
            return None
        found = np.flatnonzero(heads.timestamp >= time)
        if len(found):
            return int(heads.offset[found[0]])
        offset, size = int(heads.offset[-1]) + 1, size * 4
    return None
