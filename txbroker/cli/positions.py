"""Offsets that people ask for, kept within what a partition has."""

from __future__ import annotations

from txbroker.wire.messages import PartitionInfo


def nearest(part: PartitionInfo, wanted: int) -> tuple[int, str]:
    """The offset nearest to ``wanted`` that can be read next, and a note if that is another one."""
    if wanted < part.start_offset:
        return part.start_offset, f"{wanted} is gone, {part.start_offset} is the oldest"
    if wanted > part.high_watermark:
        return part.high_watermark, f"{wanted} is beyond the end, {part.high_watermark} is the next to come"
    return wanted, ""
