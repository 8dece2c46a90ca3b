"""The first message of a log with a time or a later one, exactly: the index says where to look, the frames decide."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from journal.formats.index import MAX_GAP
from spark.source.logs import Log, Logs, Losses, Slice
from spark.source.messages import heads_of


def first_since(logs: Logs, log: Log, time: int, skew: int, losses: Losses) -> int | None:
    """The lowest offset whose message has the time ``time`` (the sender's, µs) or a later one; None if none has.

    A sender's clock must not be ahead of the broker's by more than ``skew`` µs: what was appended before ``time`` less
    that is not looked at. Behind it all is, until one is found.
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
