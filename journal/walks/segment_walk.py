"""A walk over the frames of a partition's segments, also over damage, if sound frames follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from journal.constants import MAX_FRAME, MIB
from journal.formats import filenames
from journal.formats.compression import CODECS
from journal.formats.filenames import PartitionName, SegmentKind
from journal.formats.frame import (
    COMPRESSION,
    COMPRESSION_SHIFT,
    CRC_START,
    GAP,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    KNOWN_FLAGS,
    LOST,
    VERSION,
    VERSION_MASK,
    WRAPPER,
)
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_segment_header
from journal.formats.version import LAYOUT
from journal.interfaces import IFile, IFilesystem
from journal.vfs.file_window import opened, read_some
from journal.walks.findings import Finding, of_partition, second_crc32c
from journal.words import span

_READ_BYTES = MIB
_MAX_FRAME = 32 * MIB
"""More bytes than any frame has: bytes that state a longer length are no frame."""
_MOST_MESSAGES = MAX_FRAME // INNER_HEADER_BYTES
"""Most messages of one frame: each takes at least an inner header, and compressed that is next to nothing."""


class FrameEntry(NamedTuple):
    """A frame of a segment, by its header; ``offset`` is that of the first of its ``messages``, ``appended`` the time
    of all, 0 if it is not known.
    """

    position: int
    length: int
    offset: int
    appended: int
    timestamp: int
    messages: int
    flag: int
    frame: memoryview


def partitions(filesystem: IFilesystem) -> list[tuple[PartitionName, str]]:
    """Return the partitions with files: their names and directories, by number. A deleted one's files may still
    exist.
    """
    if not filesystem.exists(filenames.PARTITION_DIRECTORY):
        return []
    found = []
    for name in filesystem.list_directory(filenames.PARTITION_DIRECTORY):
        parsed = filenames.parse_partition_directory(name)
        if parsed is not None:
            found.append((parsed, f"{filenames.PARTITION_DIRECTORY}/{name}"))
    return sorted(found, key=lambda each: each[0].number)


def segments(filesystem: IFilesystem, directory: str) -> list[tuple[int, str]]:
    """Return a partition's segments: base offsets and paths, oldest first; of several files of one the newest."""
    epochs: dict[int, int] = {}
    for name in filesystem.list_directory(directory):
        each = filenames.parse_segment_file(name)
        if each is not None and each.kind is SegmentKind.LOG:
            epochs[each.base_offset] = max(each.epoch, epochs.get(each.base_offset, 0))
    return [
        (base, filenames.segment_file(directory, base, SegmentKind.LOG, epoch))
        for base, epoch in sorted(epochs.items())
    ]


def header_of(filesystem: IFilesystem, path: str) -> SegmentHeader | None:
    """Return the header of a segment's file; None if it is damaged."""
    return unpack_segment_header(read_some(filesystem, path, 0, SEGMENT_HEADER_BYTES), second_crc32c)


def walk_segment(
    filesystem: IFilesystem,
    path: str,
    base_offset: int,
    end: int | None = None,
    position: int = SEGMENT_HEADER_BYTES,
) -> Iterator[FrameEntry | Finding]:
    """Yield the frames of a segment, offsets dense from ``base_offset`` on, up to byte ``end`` (the file's if None).

    A frame that fails its checksum is reported and skipped. Where the chain of lengths breaks, the next sound frame
    with a possible offset is searched, and the walk continues there. Bytes beyond the newest checkpoint's end may be
    torn: a start cuts them and writes them again.
    """
    with opened(filesystem, path) as file:
        size = file.size()
        yield from _walk_frames(file, path, base_offset, position, size if end is None else min(end, size))


def _walk_frames(
    file: IFile, path: str, offset: int, position: int, end: int
) -> Iterator[FrameEntry | Finding]:
    start, data = position, memoryview(b"")
    while position < end:
        if position + HEADER_BYTES > start + len(data):
            start, data = position, memoryview(file.read(position, min(_READ_BYTES, end - position)))
        fields = (
            HEADER.unpack_from(data, position - start)
            if len(data) - (position - start) >= HEADER_BYTES
            else None
        )
        if fields is None or not _is_possible(fields, offset, end - position):
            found = next_frame(file, position + 1, offset, end)
            yield _broken(path, position, offset, found, end)
            if found is None:
                return
            position, offset = found
            continue
        length, crc, _, appended, timestamp, count, flag, _ = fields
        if position + length > start + len(data):
            start = position
            data = memoryview(file.read(position, max(length, min(_READ_BYTES, end - position))))
        frame = data[position - start : position - start + length]
        if second_crc32c(frame[CRC_START:]) == crc:
            yield FrameEntry(position, length, offset, appended, timestamp, count, flag, frame)
        elif (found := _misled(file, position, length, offset, count, end)) is not None:
            yield _broken(path, position, offset, found, end)
            position, offset = found
            continue
        else:
            last = offset + count - 1
            problem = f"the frame of {span('offset', offset, last)} fails its checksum"
            yield Finding(path, position, problem, affects=of_partition(path, offset, last))
        position += length
        offset += count


def _misled(
    file: IFile, position: int, length: int, offset: int, count: int, end: int
) -> tuple[int, int] | None:
    """Return where a sound frame follows a damaged one, if its own length and count do not lead to one."""
    if position + length == end or frame_at(file, position + length, offset + count, end):
        return None
    return next_frame(file, position + 1, offset, end)


def _is_possible(fields: tuple[int, ...], offset: int, room: int) -> bool:
    length, _, found, _, _, count, _, _ = fields
    return found == offset and bool(count) and HEADER_BYTES <= length <= room


def frame_at(file: IFile, position: int, offset: int, end: int) -> bool:
    """Return whether a sound frame of that offset begins at that position."""
    header = file.read(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return False
    fields = HEADER.unpack(header)
    if not _is_possible(fields, offset, min(end - position, _MAX_FRAME)):
        return False
    return bool(second_crc32c(file.read(position + CRC_START, fields[0] - CRC_START)) == fields[1])


def next_frame(file: IFile, position: int, offset: int, end: int) -> tuple[int, int] | None:
    """Return (position, offset) of the first sound frame from ``position`` on with an offset above ``offset``; None:
    none.

    Offsets that could not be reached by the frames that fit into the bytes before it do not count.
    """
    start = position - 1
    pattern = _headers(offset, offset + ((end - position) // HEADER_BYTES + 1) * _MOST_MESSAGES)
    while position + HEADER_BYTES <= end:
        data = file.read(position, min(_READ_BYTES + HEADER_BYTES - 1, end - position))
        for match in pattern.finditer(data):
            at = position + match.start()
            length, crc, found, _, _, count, _, _ = HEADER.unpack_from(data, match.start())
            reachable = offset < found <= offset + (at - start) // HEADER_BYTES * _MOST_MESSAGES
            if not reachable or not count or not HEADER_BYTES <= length <= min(end - at, _MAX_FRAME):
                continue
            if second_crc32c(file.read(at + CRC_START, length - CRC_START)) == crc:
                return at, found
        position += _READ_BYTES
    return None


def _headers(least: int, most: int) -> re.Pattern[bytes]:
    """Return a pattern of every header of a frame with an offset between these; also of overlapping ones."""
    low, high = least.to_bytes(8, "big"), most.to_bytes(8, "big")
    common = next((n for n in range(8) if low[n] != high[n]), 8)
    return re.compile(
        rb"(?=[\x00\x01].{7}" + re.escape(low[:common]) + b".{%d}" % (8 - common + 16)
        + rb"\x00.{3}" + re.escape(bytes((LAYOUT,))) + rb"\x00\x00.\x00.{3})",
        re.DOTALL,
    )  # fmt: skip


def _broken(path: str, position: int, offset: int, found: tuple[int, int] | None, end: int) -> Finding:
    if found is None:
        return Finding(
            path,
            position,
            f"no frame of offset {offset} begins there, and no sound one follows in the {end - position} bytes left",
            affects=of_partition(path, offset, None),
        )
    last = found[1] - 1
    return Finding(
        path,
        position,
        f"no sound frame of offset {offset} begins there; {found[0] - position} bytes are damaged, the next sound one "
        f"is that of offset {found[1]}",
        affects=of_partition(path, offset, last),
    )


def is_known_flag(flag: int) -> bool:
    """Return whether the flag of a stored frame is one that this version writes."""
    if flag & COMPRESSION:
        number = (flag & COMPRESSION) >> COMPRESSION_SHIFT
        return number in CODECS and flag & ~COMPRESSION == VERSION | WRAPPER
    return not flag & ~(KNOWN_FLAGS | LOST | GAP) and flag & VERSION_MASK == VERSION
