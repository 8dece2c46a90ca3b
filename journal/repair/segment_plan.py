"""Plan the repair of a damaged segment: what is proven stays, the journal fills holes, marks replace what is lost.

Proven frames stay where they are: those of blocks that fulfil the running checksum, and those of a block that would
fulfil it but for damaged payloads. A hole gets the journal's bytes for its messages. Messages that no file holds any
more become frames that say "lost", of the same length and for the same offsets: so no other offset moves, and readers
of those offsets get a typed error with their range, not silence and not an invented message. A frame that only fulfils
its own checksum is not proven: it may be another log's, or lie inside a message's value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import error as StructError

from msgspec.structs import replace

from journal.check.block_check import Block, Span, blocks_of, failing, known_places, proven_frames
from journal.constants import MIB
from journal.formats import filenames
from journal.formats.filenames import SegmentKind
from journal.formats.frame import CRC_START, GAP, HEADER, HEADER_BYTES, encode_lost
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_segment_header, seed_of
from journal.formats.store_state import SegmentState, StoreState
from journal.interfaces import IFilesystem
from journal.repair.evidence import Again, Hole
from journal.repair.file_pieces import Change, Piece, Slice, bytes_of
from journal.vfs.file_window import opened, read_some
from journal.walks.findings import second_crc32c
from journal.walks.segment_walk import FrameEntry, header_of, walk_segment

_NO_NONCE = bytes(16)


@dataclass(slots=True)
class DamagedSegment:
    """A damaged segment, with what of it is proven. ``source`` is the file that has its header, "" if no file has.

    ``unproven`` are offsets (inclusive) of frames that fulfil their own checksums, and of which nothing more is known.
    """

    store: StoreState
    state: SegmentState
    path: str
    source: str
    header: bytes
    spans: list[Span] = field(default_factory=list)
    unproven: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Return whether all frames are proven, in one run."""
        return [(span.position, span.end) for span in self.spans] == [(SEGMENT_HEADER_BYTES, self.state.size)]

    def holes(self) -> list[tuple[Hole, int]]:
        """Return what lies between the spans, and how many bytes each hole takes."""
        found: list[tuple[Hole, int]] = []
        position, offset = SEGMENT_HEADER_BYTES, self.state.base_offset
        for span in [*self.spans, self._end]:
            if offset < span.first:
                found.append((Hole(self.store.number, offset, span.first), span.position - position))
            position, offset = span.end, span.after
        return found

    @property
    def _end(self) -> Span:
        return Span(self.state.size, self.state.size, self.state.end_offset, self.state.end_offset)

    def mended(
        self, filesystem: IFilesystem, found: dict[Hole, list[Again]]
    ) -> tuple[Change, list[tuple[int, int]], SegmentState]:
        """Return the segment's new bytes, the offsets (inclusive) that are lost for good, and its new state."""
        if (
            self.is_whole
            and self.source != self.path
            and self.header == read_some(filesystem, self.source, 0, SEGMENT_HEADER_BYTES)
        ):
            why = f"it is found as {self.source}"
            return Change(self.path, None, why, self.source), [], self.state
        pieces: list[Piece] = []
        lost: list[tuple[int, int]] = []
        holes = self.holes()
        offset = self.state.base_offset
        for span in [*self.spans, self._end]:
            if offset < span.first:
                hole, size = holes.pop(0)
                filled, gone = _filled(filesystem, hole, size, found.get(hole, []))
                pieces += filled
                lost += gone
            if span.end > span.position:
                pieces.append(Slice(self.source, span.position, span.end - span.position))
            offset = span.after
        checksum = seed_of(self.state.salt)
        for piece in pieces:
            for data in bytes_of(filesystem, piece):
                checksum = second_crc32c(data, checksum)
        why = "marks in the place of lost messages"
        if not lost:
            why = (
                "the journal's bytes in the place of the damaged ones" if self.holes() else "its header anew"
            )
        state = replace(self.state, checksum=checksum, removed=self._removed(filesystem))
        return Change(self.path, [self.header, *pieces], why), lost, state

    def _removed(self, filesystem: IFilesystem) -> int:
        """Return how many messages are in gaps that stay."""
        if not self.state.removed:
            return 0
        frames = (
            each
            for span in self.spans
            for each in walk_segment(filesystem, self.source, span.first, span.end, span.position)
        )
        return sum([each.messages for each in frames if isinstance(each, FrameEntry) and each.flag & GAP])


class SegmentFiles:
    """Finds segments' files by what their headers say, wherever the files lie."""

    def __init__(self, filesystem: IFilesystem) -> None:
        self._filesystem = filesystem
        self._by_header: dict[tuple[int, int, int], list[str]] | None = None

    def of(self, number: int, state: SegmentState, path: str) -> tuple[str, bytes]:
        """Return (path, header) of a segment's file that should lie at ``path``; ("", a new header) if there is none.

        A file at ``path`` whose header is damaged is taken for the segment's: its blocks prove whether it is.
        """
        key = (number, state.base_offset, state.salt)
        anew = pack_segment_header(SegmentHeader(_NO_NONCE, 0, *key))
        if self._filesystem.exists(path):
            header = header_of(self._filesystem, path)
            if header is None:
                return path, anew
            if header[2:] == key:
                return path, pack_segment_header(header)
        for other in self._all().get(key, []):
            header = header_of(self._filesystem, other)
            assert header is not None, other
            return other, pack_segment_header(header)
        return "", anew

    def _all(self) -> dict[tuple[int, int, int], list[str]]:
        if self._by_header is None:
            self._by_header = {}
            for path in _files_below(self._filesystem, filenames.PARTITION_DIRECTORY):
                header = header_of(self._filesystem, path)
                if header is not None:
                    self._by_header.setdefault(header[2:], []).append(path)
        return self._by_header


def _files_below(filesystem: IFilesystem, directory: str) -> Iterable[str]:
    """Yield all files of the partitions' directories, whatever their names."""
    if not filesystem.exists(directory):
        return
    for name in filesystem.list_directory(directory):
        try:
            names = filesystem.list_directory(f"{directory}/{name}")
        except NotADirectoryError:
            continue
        for each in names:
            if not each.endswith((f".{SegmentKind.INDEX.value}", f".{SegmentKind.TIME.value}")):
                yield f"{directory}/{name}/{each}"


def segments_of(
    filesystem: IFilesystem, store: StoreState, damaged: set[str], files: SegmentFiles, accept: bool
) -> list[DamagedSegment]:
    """Return the segments of a store whose paths are among the damaged ones, with what of them is proven.

    With ``accept`` frames count as proven that only fulfil their own checksums.
    """
    directory = store.directory
    found = []
    for state in store.segments:
        path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG, state.epoch)
        if path in damaged:
            source, header = files.of(store.number, state, path)
            segment = DamagedSegment(store, state, path, source, header)
            if source:
                _prove(filesystem, segment, accept)
            found.append(segment)
    return found


def is_proven(filesystem: IFilesystem, store: StoreState, state: SegmentState) -> bool:
    """Return whether the segment's file lies where it should, and all of it is proven."""
    path = filenames.segment_file(store.directory, state.base_offset, SegmentKind.LOG, state.epoch)
    header = header_of(filesystem, path) if filesystem.exists(path) else None
    if header is None or header[2:] != (store.number, state.base_offset, state.salt):
        return False
    segment = DamagedSegment(store, state, path, path, pack_segment_header(header))
    _prove(filesystem, segment, accept=False)
    return segment.is_whole


def _prove(filesystem: IFilesystem, segment: DamagedSegment, accept: bool) -> None:
    """Find out what of a segment's source is proven, and what is not."""
    state, source = segment.state, segment.source
    blocks = blocks_of(state, known_places(filesystem, source, state.salt, state.end_offset, state.size))
    with opened(filesystem, source) as file:
        whole = blocks_of(state, ())
        if not any(failing(file.read, whole, _nobody)):
            blocks = whole  # whatever its index says
        wrong = set(failing(file.read, blocks, _nobody))
        for block in blocks:
            if block not in wrong:
                frames = [
                    Span(block.start.position, block.end.position, block.start.offset, block.end.offset)
                ]
            else:
                frames = proven_frames(file.read, block) or []
                if not frames:
                    unproven = unproven_frames(filesystem, source, block)
                    segment.unproven += [(span.first, span.after - 1) for span in unproven]
                    frames = unproven if accept else []
            for span in frames:
                _join(segment.spans, span)


def _nobody(_: int) -> None:
    """Ignore progress: the caller does not watch it."""


def unproven_frames(filesystem: IFilesystem, source: str, block: Block) -> list[Span]:
    """Return the frames of a block that fulfil their own checksums, at places where a frame can be.

    A frame counts only if messages before and behind it, if any, still have room for at least one frame's header.
    """
    begin, end = block
    spans: list[Span] = []
    position, offset = begin.position, begin.offset
    for each in walk_segment(filesystem, source, begin.offset, end.position, begin.position):
        if not isinstance(each, FrameEntry):
            continue
        span = Span(each.position, each.position + each.length, each.offset, each.offset + each.messages)
        before, behind = span.position - position, end.position - span.end
        fits = (span.first > offset) == (before >= HEADER_BYTES) and bool(before) == (span.first > offset)
        if fits and span.after <= end.offset and (behind >= HEADER_BYTES) == (span.after < end.offset):
            _join(spans, span)
            position, offset = span.end, span.after
    return spans


def _join(spans: list[Span], span: Span) -> None:
    if spans and (spans[-1].end, spans[-1].after) == (span.position, span.first):
        spans[-1] = spans[-1]._replace(end=span.end, after=span.after)
    else:
        spans.append(span)


def _filled(
    filesystem: IFilesystem, hole: Hole, size: int, found: list[Again]
) -> tuple[list[Piece], list[tuple[int, int]]]:
    sound = {each.first: each for each in found if _is_sound(filesystem, each)}
    gone: list[tuple[int, int]] = []
    parts: list[Again | tuple[int, int]] = []
    offset = hole.first
    for first in sorted(sound):
        if first < offset:
            continue
        if first > offset:
            parts.append((offset, first))
        parts.append(sound[first])
        offset = sound[first].end
    if offset < hole.end:
        parts.append((offset, hole.end))
    gone = [part for part in parts if not isinstance(part, Again)]
    room = size - sum(part.piece.length for part in parts if isinstance(part, Again))
    if (not gone and room) or (gone and room < HEADER_BYTES * len(gone)):
        return _lost(hole.first, hole.end, size), [(hole.first, hole.end - 1)]
    pieces: list[Piece] = []
    for part in parts:
        if isinstance(part, Again):
            pieces.append(part.piece)
            continue
        mine = room if part is gone[-1] else _least(room, part, gone)
        pieces += _lost(part[0], part[1], mine)
        room -= mine
    return pieces, [(first, end - 1) for first, end in gone]


def _least(room: int, part: tuple[int, int], gone: list[tuple[int, int]]) -> int:
    """Return how many bytes one of several lost runs gets that share them: its messages' headers, if they fit."""
    others = HEADER_BYTES * (len(gone) - 1 - gone.index(part))
    return max(HEADER_BYTES, min(HEADER_BYTES * (part[1] - part[0]), room - others))


def _lost(first: int, end: int, size: int) -> list[Piece]:
    """Return frames of ``size`` bytes in all which say that the messages from ``first`` to below ``end`` are lost."""
    count = end - first
    frames = max(1, min(count, size // MIB))
    pieces: list[Piece] = []
    for number in range(frames):
        messages = count // frames + (number < count % frames)
        length = size // frames + (number < size % frames)
        pieces.append(encode_lost(first, messages, length))
        first += messages
    return pieces


def _is_sound(filesystem: IFilesystem, again: Again) -> bool:
    data = read_some(filesystem, again.piece.path, again.piece.position, again.piece.length)
    try:
        length, crc, _, _, _, count, _, _ = HEADER.unpack_from(data)
    except StructError:
        return False
    if not length == len(data) == again.piece.length or count != again.end - again.first:
        return False
    return bool(second_crc32c(data[CRC_START:]) == crc)
