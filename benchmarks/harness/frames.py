"""The messages that the benchmarks send, made once, as a client with a fixed body would send them."""

from __future__ import annotations

from journal.formats import frame

BODY = bytes(range(100))
KIB_BODY = bytes(range(256)) * 4
TIMESTAMP = 1_700_000_000_000_000
BATCH = 100
KIB_BATCH = 64


def wrapper(body: bytes, count: int) -> bytes:
    """Return a batch as the client makes it: one frame that holds the others."""
    inner = b"".join(frame.encode_inner(position, body, TIMESTAMP) for position in range(count))
    return frame.encode_wrapper(inner, count, TIMESTAMP)


SINGLE = frame.encode(BODY, TIMESTAMP)
BATCH_BYTES = wrapper(BODY, BATCH)
KIB_BATCH_BYTES = wrapper(KIB_BODY, KIB_BATCH)
TINY = frame.encode(b"", 1)
