"""Possible uses of pooled memory, each with it and without: the figures behind the decision in `docs/decisions`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.harness.frames import SINGLE
from journal.buffers import PooledAllocator
from journal.constants import KIB, MIB
from journal.log.tail import Tail

POOL: Final = PooledAllocator(256 * MIB)

Way = Callable[[], object]


class Use(NamedTuple):
    """A use: what the memory is for, the way without the pool, how many times a call does it, and the calls."""

    name: str
    plain: str
    times: int
    with_pool: Way
    without: Way


class _Plain:
    """A buffer like the pool's, in memory that Python allocates."""

    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))

    def release(self) -> None:
        self.view.release()


class _PlainAllocator:
    """An allocator that keeps no memory."""

    def allocate(self, size: int) -> _Plain:
        return _Plain(size)


def tails(many: int, messages: int) -> Use:
    """Accept messages of partitions, and drop them."""

    def way(allocator: Any) -> Way:
        made = [Tail(allocator) for _ in range(many)]

        def run() -> None:
            for tail in made:
                for _ in range(messages):
                    tail.append(SINGLE, 1, 0)
            for tail in made:
                tail.drop(messages)

        return run

    name = f"messages in tails, {many:,} × {messages:,}"
    return Use(name, "a bytearray a chunk", many * messages, way(POOL), way(_PlainAllocator()))


def staged(size: int) -> Use:
    """Copy a message of a transaction out of what the socket gave, hold it until the commit, and free it."""
    arrived = memoryview(bytes(64 * KIB + size))[100 : 100 + size]
    count = 100

    def with_pool() -> None:
        held = []
        for _ in range(count):
            buffer = POOL.allocate(size)
            buffer.view[:] = arrived
            held.append(buffer)
        for buffer in held:
            buffer.release()

    def without() -> None:
        held = []
        for _ in range(count):
            POOL.reserve(size)
            held.append(bytes(arrived))
        for data in held:
            POOL.unreserve(len(data))

    return Use(f"staged frames, {_size(size)}", "bytes, counted", count, with_pool, without)


def group(pieces: int, size: int, file: int) -> Use:
    """Write a journal group to the file: joined in pooled memory, or each piece by pwritev."""
    data = [bytes(size)] * pieces

    def with_pool() -> None:
        buffer = POOL.allocate(pieces * size)
        position = 0
        for piece in data:
            buffer.view[position : position + size] = piece
            position += size
        os.pwrite(file, buffer.view, 0)
        buffer.release()

    def without() -> None:
        os.pwrite(file, b"".join(data), 0) if size < KIB else os.pwritev(file, data, 0)

    plain = "one join" if size < KIB else "pwritev"
    return Use(f"group of {pieces} × {_size(size)}", plain, 1, with_pool, without)


def read(size: int, file: int) -> Use:
    """Fetch from a segment: the transport takes only bytes, so what was read into the pool is copied once more."""

    def with_pool() -> bytes:
        buffer = POOL.allocate(size)
        os.preadv(file, [buffer.view], 0)
        data = bytes(buffer.view)
        buffer.release()
        return data

    def without() -> bytes:
        return os.pread(file, size, 0)

    return Use(f"read of {_size(size)}", "bytes of pread", 1, with_pool, without)


def uses(folder: Path) -> list[Use]:
    """Return all uses. The file is in ``folder``; its pages are in memory, so that the disk plays no part."""
    path = folder / "pieces"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    path.unlink()
    os.pwrite(file, bytes(4 * MIB), 0)
    return [
        tails(1, 10_000),
        tails(1000, 10),
        tails(10_000, 1),
        *map(staged, (100, 4 * KIB, 64 * KIB, MIB)),
        group(1000, 200, file),
        group(500, 8 * KIB, file),
        *(read(size, file) for size in (4 * KIB, 64 * KIB, MIB, 4 * MIB)),
    ]


def _size(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"
