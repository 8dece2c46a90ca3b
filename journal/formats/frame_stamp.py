"""The stamps of frames: the log writes offset and append time into each frame that it takes, outside of the checksum.

It is one of the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

from journal.formats import frame_header as header
from journal.formats.frame_header import STAMP_START


def stamp(view: memoryview, base_offset: int, appended: int) -> int:
    """Write offsets from ``base_offset`` on, and the append time, into a run of checked frames; return the offset after
    them.
    """
    position, end = 0, len(view)
    while position < end:
        length, count = header.unpack_length_and_count(view, position)
        header.pack_stamp(view, position + STAMP_START, base_offset, appended)
        base_offset += count
        position += length
    return base_offset


def stamp_some(
    view: memoryview, position: int, until: int, base_offset: int, appended: int
) -> tuple[int, int]:
    """Do what :func:`stamp` does with the frames from ``position`` on that begin before ``until``; also return
    their end.
    """
    while position < until:
        length, count = header.unpack_length_and_count(view, position)
        header.pack_stamp(view, position + STAMP_START, base_offset, appended)
        base_offset += count
        position += length
    return base_offset, position
