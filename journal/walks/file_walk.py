"""A walk over one file of a data directory of any kind, item by item: for dumps, also of a file copied elsewhere."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from journal.checkpoints.rows import typed_rows
from journal.errors import CorruptData
from journal.formats import filenames
from journal.formats.checkpoint import CheckpointHeader, End, Rows, Stores, walk_sections
from journal.formats.filenames import SegmentKind
from journal.formats.index import OFFSET_ENTRY, TIME_ENTRY
from journal.formats.segment_header import SegmentHeader, seed_of
from journal.formats.staged_header import STAGED_HEADER_BYTES, StagedHeader, unpack_staged_header
from journal.interfaces import IFilesystem
from journal.records.journal_headers import FileHeader
from journal.vfs.file_window import file_size, read_some
from journal.wal.reader import JournalEntry
from journal.walks.checkpoint_walk import reason_of
from journal.walks.findings import Finding, second_crc32c
from journal.walks.frame_walk import frames_of
from journal.walks.journal_walk import survey_any, walk_file
from journal.walks.segment_walk import FrameEntry, header_of, walk_segment


class FileKind(enum.Enum):
    """The kind of a file, by its name."""

    JOURNAL = "journal file"
    SEGMENT = "segment"
    INDEX = "offset index"
    TIME = "time index"
    CHECKPOINT = "checkpoint"
    STAGED = "staged file"


class IndexItem(NamedTuple):
    """An entry of an index. ``sound`` is None if no header of a log beside it gives the checksums' seed."""

    position: int
    offset: int
    sound: bool | None
    byte: int | None = None
    time: int | None = None


class SectionItem(NamedTuple):
    """A section of a checkpoint."""

    position: int
    section: CheckpointHeader | Rows | Stores | End


Item = (
    JournalEntry | FrameEntry | IndexItem | SectionItem | FileHeader | SegmentHeader | StagedHeader | Finding
)


def kind_of(name: str) -> FileKind | None:
    """Return the kind of a file with that bare name; None for a file that cannot be dumped."""
    segment = filenames.parse_segment_file(name)
    if segment is not None:
        kinds = {
            SegmentKind.LOG: FileKind.SEGMENT,
            SegmentKind.INDEX: FileKind.INDEX,
            SegmentKind.TIME: FileKind.TIME,
        }
        return kinds.get(segment.kind)
    if filenames.parse_journal_file(name) is not None or filenames.parse_recycled_file(name) is not None:
        return FileKind.JOURNAL
    finished = name.removesuffix(filenames.TEMPORARY)
    if filenames.parse_checkpoint_file(finished) is not None:
        return FileKind.CHECKPOINT
    return FileKind.STAGED if filenames.parse_staged_file(finished) is not None else None


def walk_any(filesystem: IFilesystem, path: str, kind: FileKind, from_lsn: int = 0) -> Iterator[Item]:
    """Yield the items of a file, in order, and its damage; it goes on behind damage where that is possible."""
    match kind:
        case FileKind.JOURNAL:
            file = survey_any(filesystem, path)
            if file.header is None:
                yield Finding(path, 0, file.problem)
                return
            yield file.header
            yield from walk_file(filesystem, path, file.header, None, from_lsn, beyond=True)
        case FileKind.SEGMENT:
            header = header_of(filesystem, path)
            yield header if header is not None else Finding(path, 0, "its header is damaged")
            yield from walk_segment(filesystem, path, _base_of(path))
        case FileKind.INDEX | FileKind.TIME:
            yield from _walk_index(filesystem, path, kind)
        case FileKind.CHECKPOINT:
            yield from _walk_checkpoint(filesystem, path)
        case FileKind.STAGED:
            staged = unpack_staged_header(read_some(filesystem, path, 0, STAGED_HEADER_BYTES), second_crc32c)
            yield staged if staged is not None else Finding(path, 0, "its header is damaged")
            yield from frames_of(filesystem, path)


def _walk_checkpoint(filesystem: IFilesystem, path: str) -> Iterator[Item]:
    sections = list(walk_sections(filesystem, path, second_crc32c))
    rows: dict[str, list[Any]] = {}
    for _, section in sections:
        if isinstance(section, Rows):
            rows.setdefault(section.fold, []).extend(section.rows)
    told = {fold: iter(typed_rows(fold, found)) for fold, found in rows.items()}
    for position, section in sections:
        if isinstance(section, CorruptData):
            yield Finding(path, position, reason_of(section))
        elif isinstance(section, Rows):
            typed = list(islice(told[section.fold], len(section.rows)))
            yield SectionItem(position, Rows(section.fold, typed))
        else:
            yield SectionItem(position, section)


def _base_of(path: str) -> int:
    name = filenames.parse_segment_file(path.rpartition("/")[2])
    assert name is not None, path
    return name.base_offset


def _walk_index(filesystem: IFilesystem, path: str, kind: FileKind) -> Iterator[Item]:
    data = read_some(filesystem, path, 0, file_size(filesystem, path))
    layout = OFFSET_ENTRY if kind is FileKind.INDEX else TIME_ENTRY
    seed = _seed_of(filesystem, path)
    for position in range(0, len(data) - layout.size + 1, layout.size):
        first, second, *_, crc = layout.unpack_from(data, position)
        body = data[position : position + layout.size - 4]
        sound = None if seed is None else second_crc32c(body, seed) == crc
        if sound is False:
            yield Finding(path, position, "the entry fails its checksum; the index is made again", True)
        elif kind is FileKind.INDEX:
            yield IndexItem(position, first, sound, byte=second)
        else:
            yield IndexItem(position, second, sound, time=first)
    if rest := len(data) % layout.size:
        yield Finding(path, len(data) - rest, f"{rest} bytes are no whole entry", True)


def _seed_of(filesystem: IFilesystem, path: str) -> int | None:
    log = path.rpartition(".")[0] + "." + SegmentKind.LOG.value
    header = header_of(filesystem, log) if filesystem.exists(log) else None
    return None if header is None else seed_of(header.salt)
