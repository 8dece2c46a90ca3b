"""Data directories for tests of reading: the real engine makes them quickly, and they are damaged on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import journal
from journal.embedded import Log
from journal.formats import frame
from journal.formats.compression import compressor
from journal.formats.filenames import SegmentKind, parse_partition_directory, parse_segment_file
from tests.support.builders import small_files

PER_WRAPPER = 100
START = 1_700_000_000_000_000
"""The senders' time of message 0; each later one is a second on."""

Value = Callable[[int], bytes]


def value_of(number: int) -> bytes:
    return b"%08d" % number + b"." * 40


def fill(
    path: Path,
    messages: int,
    *,
    partitions: int = 1,
    topic: str = "t",
    wrapped: bool = True,
    segment_bytes: int = 64 << 10,
    value: Value = value_of,
    per_frame: int = PER_WRAPPER,
    codec: str | None = None,
) -> None:
    """A topic with so many messages, numbered over all partitions, which take them in turns, a wrapper at a time."""
    with journal.open(path, small_files()) as log:
        log.create_topic(topic, partitions, segment_bytes=segment_bytes)
        append(log, range(messages), topic, wrapped, value, per_frame, codec)


def append(
    log: Log,
    numbers: range,
    topic: str = "t",
    wrapped: bool = True,
    value: Value = value_of,
    per_frame: int = PER_WRAPPER,
    codec: str | None = None,
) -> None:
    """More messages; ``codec`` compresses wrappers."""
    engine, stores = log.engine, log.engine.catalog.topic(topic).partitions
    for turn, start in enumerate(range(numbers.start, numbers.stop, per_frame)):
        batch = range(start, min(start + per_frame, numbers.stop))
        if wrapped:
            inner = [
                frame.encode_inner(place, value(number), START + number * 1_000_000)
                for place, number in enumerate(batch)
            ]
            data = wrapper_of(b"".join(inner), len(batch), START, codec)
        else:
            data = b"".join(frame.encode(value(number), START + number * 1_000_000) for number in batch)
        engine.append(stores[turn % len(stores)], data, len(batch))
        if turn % 50 == 49:
            engine.sync()
            engine.housekeeping.run_inline()
    engine.sync()


def wrapper_of(inner: bytes, count: int, timestamp: int, codec: str | None) -> bytes:
    """A wrapper around these frames, compressed if that is worth it."""
    packer = compressor(codec)
    packed = packer.pack(inner) if packer is not None else None
    if packer is None or packed is None:
        return frame.encode_wrapper(inner, count, timestamp)
    return frame.encode_wrapper(packed, count, timestamp, packer.number)


def segments(path: Path, topic: str = "t", index: int = 0) -> list[Path]:
    """A partition's segments, oldest first."""
    for directory in (path / "partitions").iterdir():
        name = parse_partition_directory(directory.name)
        if name is not None and (name.topic, name.index) == (topic, index):
            return sorted(
                file
                for file in directory.iterdir()
                if (found := parse_segment_file(file.name)) and found.kind is SegmentKind.LOG
            )
    raise AssertionError(f"{topic}-{index} has no directory in {path}")


def flip(file: Path, position: int) -> None:
    """Damage one byte."""
    with file.open("r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([byte ^ 0x40]))


def numbers_in(values: Sequence[bytes]) -> list[int]:
    """The numbers of messages made by :func:`fill`."""
    return [int(value[:8]) for value in values]
