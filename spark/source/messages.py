"""The messages of a part of a log, checked, a block at a time; damaged or removed ones are losses."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from journal.constants import KIB, MIB
from spark.source.blocks import read_block
from spark.source.logs import Logs, Losses, MessagesLost, Slice
from spark.source.message_heads import Heads, UnsoundBlock

BLOCK_BYTES = 8 * MIB
"""How many bytes are read and turned into rows at a time."""
SLACK_BYTES = 64 * KIB
"""How many bytes are read beyond the estimated rest of a part, so that its last batch is mostly read along with it."""


def heads_of(logs: Logs, part: Slice, losses: Losses) -> Generator[Heads]:
    """Yield the messages of a part, a block at a time, in order and without a gap; damaged or removed ones are
    losses.
    """
    cursor = logs.cursor(part)
    offset = part.first
    try:
        while offset < part.end:
            try:
                data, first = cursor.read(offset, _most(part, offset))
            except MessagesLost as error:
                losses.report(error)
                offset = error.last + 1
                continue
            damage: MessagesLost | None = None
            try:
                heads, taken, after = read_block(data, first)
            except UnsoundBlock as fault:
                heads, taken, after = read_block(data[: fault.position], first)
                if fault.offset < part.end:
                    damage = cursor.damaged(fault)
                    losses.report(damage)
            if damage is None and not taken:
                damage = cursor.damaged(
                    UnsoundBlock(f"no frame of offset {first} is there", 0, max(first, offset))
                )
                losses.report(damage)
            if len((wanted := _between(heads, offset, part.end)).offset):
                yield wanted
            if damage is None:
                cursor.advance(taken, after)
                offset = after
            else:
                offset = max(after, damage.last + 1)
    finally:
        cursor.close()


def _most(part: Slice, offset: int) -> int:
    """Return how many bytes to read: few that belong to another task."""
    if not part.bytes:
        return BLOCK_BYTES
    left = part.bytes * (part.end - offset) // (part.end - part.first)
    return min(BLOCK_BYTES, left + SLACK_BYTES)


def _between(heads: Heads, first: int, end: int) -> Heads:
    """Return the messages from offset ``first`` to ``end``, exclusive."""
    low, high = np.searchsorted(heads.offset, [first, end])
    if low == 0 and high == len(heads.offset):
        return heads
    return heads.chosen(slice(int(low), int(high)))
