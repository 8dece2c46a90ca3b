"""The messages of a part of a log, checked, a block at a time: what is damaged or gone is a loss."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from journal.constants import KIB, MIB
from spark.source.blocks import read_block
from spark.source.heads import Heads, UnsoundBlock
from spark.source.logs import Logs, Losses, MessagesLost, Slice

BLOCK_BYTES = 8 * MIB
"""Read and turned into rows at a time."""
SLACK_BYTES = 64 * KIB
"""More than the bytes that a part seems to have left: its last batch of messages is mostly read along with it."""


def heads_of(logs: Logs, part: Slice, losses: Losses) -> Generator[Heads]:
    """The messages of a part, a block at a time, in order and without a gap; what is damaged or gone is a loss."""
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
    """How many bytes to read: hardly any that are another task's."""
    if not part.bytes:
        return BLOCK_BYTES
    left = part.bytes * (part.end - offset) // (part.end - part.first)
    return min(BLOCK_BYTES, left + SLACK_BYTES)


def _between(heads: Heads, first: int, end: int) -> Heads:
    """The messages from offset ``first`` to ``end``, exclusive."""
    low, high = np.searchsorted(heads.offset, [first, end])
    if low == 0 and high == len(heads.offset):
        return heads
    return heads.chosen(slice(int(low), int(high)))
