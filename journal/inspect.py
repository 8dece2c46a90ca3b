"""Read-only walks over a data directory's files: for verification, dumps, audits and Spark.

Nothing here opens a file for writing, takes the lock, or believes an index. Every checksum is computed by ``crcmod``,
an implementation independent of the one that wrote it, so that a fault of either shows. A directory in use may be
walked; its newest journal file and segments then end wherever they ended when they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import crcmod.predefined

from journal import filenames, record
from journal.checkpoint import Checkpoint, read_checkpoint
from journal.errors import CorruptData, CorruptJournal
from journal.filenames import PartitionName, SegmentKind
from journal.frame import CRC_START, HEADER, HEADER_BYTES
from journal.interfaces import IFile, IFilesystem
from journal.journal_file import FIRST_GROUP, GROUP_HEADER_BYTES, FileHeader, FileScan, unpack_file_header
from journal.record import AnyRecord

second_crc32c: Callable[..., int] = crcmod.predefined.mkCrcFun("crc-32c")
"""CRC-32C by the second implementation: ``second_crc32c(data, seed=0)``."""

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written. ``position`` is in bytes from the file's start.

    ``harmless`` says that it can be the trace of a crash and was never acknowledged, or is repaired by itself.
    """

    path: str
    position: int
    problem: str
    harmless: bool = False


class JournalEntry(NamedTuple):
    """A record of the journal and where it lies; ``data`` are its frames."""

    path: str
    position: int
    lsn: int
    record: AnyRecord
    data: memoryview


class FrameEntry(NamedTuple):
    """A frame of a segment, by its header; ``offset`` is that of the first of its ``messages``."""

    position: int
    length: int
    offset: int
    timestamp: int
    messages: int
    flag: int
    frame: memoryview


# -- the journal -----------------------------------------------------------------------------------


def journal_files(filesystem: IFilesystem) -> list[str]:
    """Paths of the journal files, oldest first."""
    names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    lsns = sorted(lsn for name in names if (lsn := filenames.parse_journal_file(name)) is not None)
    return [filenames.journal_file(lsn) for lsn in lsns]


def walk_journal(filesystem: IFilesystem, from_lsn: int = 0) -> Iterator[JournalEntry | Finding]:
    """Every record from ``from_lsn`` on, in order, and what is wrong in between.

    A file's records end at the first unsound group; whether that is torn or corrupt is said by the finding.
    """
    paths = journal_files(filesystem)
    headers = [_file_header(filesystem, path) for path in paths]
    for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
        if isinstance(header, Finding):
            yield header
            continue
        following = headers[number + 1] if number + 1 < len(headers) else None
        end = following.previous_end if isinstance(following, FileHeader) else None
        yield from _walk_file(filesystem, path, header, end, from_lsn)


def _file_header(filesystem: IFilesystem, path: str) -> FileHeader | Finding:
    try:
        return unpack_file_header(_read(filesystem, path, 0, FIRST_GROUP), path)
    except CorruptJournal as error:
        return Finding(path, 0, str(error))


def _walk_file(
    filesystem: IFilesystem, path: str, header: FileHeader, end: int | None, from_lsn: int
) -> Iterator[JournalEntry | Finding]:
    data = _read_all(filesystem, path)
    scan = FileScan(data, path, header, end)
    view = memoryview(data)
    for group in scan.groups:
        start = group.position + GROUP_HEADER_BYTES
        if second_crc32c(view[start : start + group.header.length]) != group.header.body_crc:
            yield Finding(path, group.position, "the two implementations disagree on the group's checksum")
    position, group_number = FIRST_GROUP, -1
    for lsn, unpacked in scan.records(data):
        if group_number + 1 < len(scan.located) and lsn == scan.located[group_number + 1].header.first_lsn:
            group_number += 1
            position = scan.located[group_number].position + GROUP_HEADER_BYTES
        if lsn >= from_lsn:
            if not _agrees(view, position, unpacked.length, record.seed(header.salt, lsn)):
                yield Finding(
                    path, position, f"the two implementations disagree on the checksum of LSN {lsn}"
                )
            yield JournalEntry(path, position, lsn, unpacked.record, unpacked.data)
        position += unpacked.length
    yield from _judge_end(path, scan, end)


def _agrees(view: memoryview, position: int, length: int, seed: int) -> bool:
    _, crc, _ = record.HEADER.unpack_from(view, position)
    return bool(second_crc32c(view[position + 8 : position + length], seed) == crc)


def _judge_end(path: str, scan: FileScan, end: int | None) -> Iterator[Finding]:
    """What ends a file: nothing special, a tear, or damage below what is known to have been forced."""
    if end is not None and scan.next_lsn < end:
        yield Finding(
            path, scan.stop, f"{scan.problem}, but the next file says that it goes on to LSN {end - 1}"
        )
    elif end is None and (proof := scan.proof_beyond()) is not None:
        yield Finding(
            path, scan.stop, f"{scan.problem}, but the group at {proof} proves that it had been forced"
        )
    elif end is None and scan.partial:
        yield Finding(path, scan.stop, f"torn, never acknowledged: {scan.problem}", harmless=True)


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoints(filesystem: IFilesystem) -> Iterator[Checkpoint | Finding]:
    """The checkpoints, oldest first; a damaged one is harmless while another is sound."""
    names = filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
    lsns = sorted(lsn for name in names if (lsn := filenames.parse_checkpoint_file(name)) is not None)
    for lsn in lsns:
        try:
            yield read_checkpoint(filesystem, lsn)
        except CorruptData as error:
            yield Finding(error.path, error.position, str(error), harmless=len(lsns) > 1)


# -- partitions ------------------------------------------------------------------------------------


def partitions(filesystem: IFilesystem) -> list[tuple[PartitionName, str]]:
    """The partitions with files: their names and directories, by number. A deleted one's files may linger."""
    found = []
    for name in filesystem.list_directory(filenames.PARTITION_DIRECTORY):
        parsed = filenames.parse_partition_directory(name)
        if parsed is not None:
            found.append((parsed, f"{filenames.PARTITION_DIRECTORY}/{name}"))
    return sorted(found, key=lambda each: each[0].number)


def segments(filesystem: IFilesystem, directory: str) -> list[tuple[int, str]]:
    """A partition's segments: base offsets and paths, oldest first."""
    parsed = (filenames.parse_segment_file(name) for name in filesystem.list_directory(directory))
    bases = sorted(each.base_offset for each in parsed if each is not None and each.kind is SegmentKind.LOG)
    return [(base, filenames.segment_file(directory, base, SegmentKind.LOG)) for base in bases]


def walk_segment(
    filesystem: IFilesystem, path: str, base_offset: int, end: int | None = None
) -> Iterator[FrameEntry | Finding]:
    """The frames of a segment, offsets dense from ``base_offset`` on, up to byte ``end`` (the file's if None).

    A frame that fails its checksum is reported and passed over; where the chain of lengths breaks, the walk ends
    with a finding. What lies beyond the newest checkpoint's end may be torn: a start cuts it and writes it again.
    """
    file = filesystem.open(path, writable=False)
    try:
        yield from _walk_frames(file, path, base_offset, file.size() if end is None else end)
    finally:
        file.close()


def _walk_frames(file: IFile, path: str, offset: int, end: int) -> Iterator[FrameEntry | Finding]:
    position, start, data = 0, 0, memoryview(b"")
    while position < end:
        if position + HEADER_BYTES > start + len(data):
            start, data = position, memoryview(file.read(position, min(_READ_BYTES, end - position)))
        if len(data) - (position - start) < HEADER_BYTES:
            yield Finding(path, position, f"{end - position} bytes at the end are too few for a frame")
            return
        length, crc, found, timestamp, count, flag, _ = HEADER.unpack_from(data, position - start)
        if found != offset or not count or not HEADER_BYTES <= length <= end - position:
            yield Finding(
                path, position, f"no frame of offset {offset} begins there; the rest cannot be read"
            )
            return
        if position + length > start + len(data):
            start, data = (
                position,
                memoryview(file.read(position, max(length, min(_READ_BYTES, end - position)))),
            )
        frame = data[position - start : position - start + length]
        if second_crc32c(frame[CRC_START:]) == crc:
            yield FrameEntry(position, length, offset, timestamp, count, flag, frame)
        else:
            last = offset + count - 1
            yield Finding(path, position, f"the frame of offsets {offset} to {last} fails its checksum")
        position += length
        offset += count


# -- everything ------------------------------------------------------------------------------------


def verify(filesystem: IFilesystem) -> Iterator[Finding]:
    """Everything that is wrong with a directory that no broker has open: journal, checkpoints, segments.

    Segments are checked as far as the newest sound checkpoint knows them; beyond it the journal has the bytes.
    """
    yield from (each for each in walk_journal(filesystem) if isinstance(each, Finding))
    newest: Checkpoint | None = None
    for checkpoint in checkpoints(filesystem):
        if isinstance(checkpoint, Finding):
            yield checkpoint
        else:
            newest = checkpoint
    for store in newest.stores if newest is not None else ():
        directory = filenames.partition_directory(store.topic, store.index, store.number)
        for segment in store.segments:
            yield from _verify_segment(
                filesystem, directory, segment.base_offset, segment.size, segment.end_offset
            )


def _verify_segment(
    filesystem: IFilesystem, directory: str, base_offset: int, size: int, end_offset: int
) -> Iterator[Finding]:
    path = filenames.segment_file(directory, base_offset, SegmentKind.LOG)
    if not filesystem.exists(path):
        yield Finding(path, 0, f"the file is missing; offsets {base_offset} to {end_offset - 1} are lost")
        return
    offset = base_offset
    for each in walk_segment(filesystem, path, base_offset, size):
        if isinstance(each, Finding):
            yield each
            offset = -1
        elif offset >= 0:
            offset = each.offset + each.messages
    if offset not in (-1, end_offset):
        yield Finding(path, size, f"it ends at offset {offset}, the checkpoint says {end_offset}")


def _read(filesystem: IFilesystem, path: str, position: int, length: int) -> bytes:
    file = filesystem.open(path, writable=False)
    try:
        return bytes(file.read(position, length))
    finally:
        file.close()


def _read_all(filesystem: IFilesystem, path: str) -> bytes:
    file = filesystem.open(path, writable=False)
    try:
        return bytes(file.read(0, file.size()))
    finally:
        file.close()
