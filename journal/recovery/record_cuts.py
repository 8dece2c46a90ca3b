"""Records that differ only in their numbers and in their data's length, cut into heads and data.

It is one of the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

from journal.records import record_header
from journal.records.record_header import HEADER_BYTES


def cut_apart(body: bytes, start: int, most: int, head_length: int) -> tuple[bytes, list[bytes]]:
    """Return the heads of the records from ``start`` on, at most ``most``, with their headers, in one piece; and their
    data.

    It stops before a record that is not whole, or whose head has another length.
    """
    heads: list[bytes] = []
    data: list[bytes] = []
    head_size, end, count = HEADER_BYTES + head_length, len(body), 0
    while count < most and end - start >= HEADER_BYTES:
        length, found = record_header.lengths(body, start)
        if found != head_length or length < head_size or length > end - start:
            break
        head_end = start + head_size
        heads.append(body[start:head_end])
        start += length
        data.append(body[head_end:start])
        count += 1
    return b"".join(heads), data
