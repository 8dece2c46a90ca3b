"""Times and sizes of the messages of a run, which producers report and audits compare.

Only the needed fields of each header are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.formats.frame import (
    COMPRESSION,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER,
    INNER_HEADER_BYTES,
    WRAPPER,
    open_wrapper,
)


def times_and_sizes(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the timestamp of each message of a run known to be whole, and the bytes of its key, headers and value.

    These bytes are all of its frame except the header: attribute and payload, uncompressed. Raises
    :class:`CompressionUnavailable`, and :class:`InvalidFrame` for a wrapper that cannot be opened.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        length, _, _, _, timestamp, _, flag, _ = HEADER.unpack_from(view, position)
        frame = view[position : position + length]
        if flag & COMPRESSION:
            yield from _inside(memoryview(open_wrapper(frame, f"the wrapper at {position}")))
        elif flag & WRAPPER:
            yield from _inside(frame[HEADER_BYTES:])
        else:
            yield timestamp, length - HEADER_BYTES
        position += length


def _inside(run: memoryview) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(run):
        length, _, _, timestamp, *_ = INNER_HEADER.unpack_from(run, position)
        yield timestamp, length - INNER_HEADER_BYTES
        position += length
