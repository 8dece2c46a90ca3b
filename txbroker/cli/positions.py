"""Offsets that people ask for, kept within a partition's range."""

from __future__ import annotations

from txbroker.wire.messages import PartitionInfo


def nearest(part: PartitionInfo, wanted: int) -> tuple[int, str]:
    """Return the offset nearest to ``wanted`` that can be read next, and a note if that is another one."""
    if wanted < part.start_offset:
        return part.start_offset, f"{wanted} is gone, {part.start_offset} is the oldest"
    if wanted > part.high_watermark:
        return part.high_watermark, f"{wanted} is beyond the end, {part.high_watermark} is the next to come"
    return wanted, ""
