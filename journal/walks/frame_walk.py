"""A run of message frames, checked with the second implementation of the checksum."""

from __future__ import annotations

from collections.abc import Iterator

from journal.errors import InvalidFrame
from journal.formats.frame import CRC_START, HEADER, HEADER_BYTES
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.interfaces import IFilesystem
from journal.vfs.file_window import window
from journal.walks.findings import Finding, second_crc32c
from journal.walks.segment_walk import FrameEntry


def messages_of(data: memoryview | bytes, first_offset: int | None, appended: int | None = 0) -> int:
    """Return how many messages a run holds; its frames must have dense offsets from ``first_offset`` on, or 0 if None.

    ``appended`` is the append time that all must have, None if it is not known. Raises :class:`InvalidFrame` for the
    first that is not as written.
    """
    view, position, messages = memoryview(data), 0, 0
    while position < len(view):
        if len(view) - position < HEADER_BYTES:
            raise InvalidFrame(
                f"{len(view) - position} bytes at {position} of the run are too few for a frame"
            )
        length, crc, offset, time, _, count, _, _ = HEADER.unpack_from(view, position)
        if not HEADER_BYTES <= length <= len(view) - position or not count:
            raise InvalidFrame(f"the frame at {position} of the run says {length} bytes and {count} messages")
        wanted = 0 if first_offset is None else first_offset + messages
        if offset != wanted:
            raise InvalidFrame(f"the frame at {position} of the run has offset {offset}, not {wanted}")
        if appended is not None and time != appended:
            raise InvalidFrame(f"the frame at {position} of the run has append time {time}, not {appended}")
        if second_crc32c(view[position + CRC_START : position + length]) != crc:
            raise InvalidFrame(f"the frame at {position} of the run fails its checksum")
        messages += count
        position += length
    return messages


def frames_of(filesystem: IFilesystem, path: str) -> Iterator[FrameEntry | Finding]:
    """Yield the frames of a staged file. They have no offsets yet; instead they have the number of messages
    before them.
    """
    with window(filesystem, path) as bytes_of:
        position, messages = STAGED_HEADER_BYTES, 0
        while position < bytes_of.size:
            header = bytes_of.at(position, HEADER_BYTES)
            fields = HEADER.unpack(header) if len(header) == HEADER_BYTES else (0,) * 8
            length, crc, _, appended, timestamp, count, flag, _ = fields
            if not HEADER_BYTES <= length <= bytes_of.size - position or not count:
                yield Finding(path, position, "no frame begins there; the rest cannot be read")
                return
            frame = bytes_of.at(position, length)
            if second_crc32c(frame[CRC_START:]) == crc:
                yield FrameEntry(position, length, messages, appended, timestamp, count, flag, frame)
            else:
                yield Finding(path, position, f"the frame of {count} messages fails its checksum")
            position += length
            messages += count
