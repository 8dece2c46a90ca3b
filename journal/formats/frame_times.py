"""Times and sizes of the messages of a run, which producers report and audits compare.

Only the needed fields of each header are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.formats.frame import COMPRESSION, HEADER, HEADER_BYTES, WRAPPER, open_wrapper


def times_and_sizes(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the timestamp of each message of a run known to be whole, and the bytes of its key, headers and value.

    These bytes are all of its frame except the header: attribute and payload, uncompressed. Raises
    :class:`CompressionUnavailable`, and :class:`InvalidFrame` for a wrapper that cannot be opened.
    """
    position, end = 0, len(data)
    while position < end:
        length, _, _, timestamp, _, flag, _ = HEADER.unpack_from(data, position)
        if flag & COMPRESSION:
            frame = memoryview(data)[position : position + length]
            yield from times_and_sizes(open_wrapper(frame, f"the wrapper at {position}"))
            position += length
        elif flag & WRAPPER:
            position += HEADER_BYTES  # the frames inside follow one another, as those outside do
        else:
            yield timestamp, length - HEADER_BYTES
            position += length
