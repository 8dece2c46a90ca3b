"""A damaged segment: what of it is sound, what the journal still holds, and what is put in the place of the rest.

Sound frames stay where they are. A hole gets the journal's bytes for its messages; what nothing holds any more becomes
frames that say "lost", of the same length and for the same offsets: so no other offset moves, and readers of those
get a typed error with their range, not silence and not an invented message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import error as StructError

from journal import filenames
from journal.constants import MIB
from journal.filenames import SegmentKind
from journal.frame import CRC_START, HEADER, HEADER_BYTES, encode_lost
from journal.inspect.findings import second_crc32c
from journal.inspect.journal_walk import read_some
from journal.inspect.segment_walk import FrameEntry, walk_segment
from journal.interfaces import IFilesystem
from journal.repair.followed import Again, Hole
from journal.repair.pieces import Change, Piece, Slice
from journal.segment import SegmentState
from journal.store_state import StoreState


@dataclass(slots=True)
class DamagedSegment:
    """A segment with its sound spans and holes. Spans are (position, end, first offset, offset after)."""

    store: StoreState
    state: SegmentState
    path: str
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)

    def holes(self) -> list[tuple[Hole, int]]:
        """What lies between the spans, and how many bytes each hole takes."""
        found: list[tuple[Hole, int]] = []
        position, offset = 0, self.state.base_offset
        for start, end, first, after in [*self.spans, (self.state.size, 0, self.state.end_offset, 0)]:
            if offset < first:
                found.append((Hole(self.store.number, offset, first), start - position))
            position, offset = end, after
        return found


def segments_of(
    filesystem: IFilesystem, store: StoreState, damaged: set[str], foreign: set[str]
) -> list[DamagedSegment]:
    """The segments of a store whose paths are among the damaged ones, with what of them is sound.

    Nothing of a file that is another's is, though each of its frames may fulfil its checksum.
    """
    directory = filenames.partition_directory(store.topic, store.index, store.number)
    found = []
    for state in store.segments:
        path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG)
        if path in damaged:
            readable = path not in foreign and filesystem.exists(path)
            spans = _spans(filesystem, path, state) if readable else []
            found.append(DamagedSegment(store, state, path, spans))
    return found


def _spans(filesystem: IFilesystem, path: str, state: SegmentState) -> list[tuple[int, int, int, int]]:
    spans: list[tuple[int, int, int, int]] = []
    for each in walk_segment(filesystem, path, state.base_offset, state.size):
        if not isinstance(each, FrameEntry):
            continue
        end, after = each.position + each.length, each.offset + each.messages
        if after > state.end_offset:
            break
        if spans and spans[-1][1] == each.position and spans[-1][3] == each.offset:
            spans[-1] = (spans[-1][0], end, spans[-1][2], after)
        else:
            spans.append((each.position, end, each.offset, after))
    whole = not spans or (spans[-1][1] == state.size) == (spans[-1][3] == state.end_offset)
    return spans if whole else []  # its bytes end elsewhere than its offsets: it is another's


def mended(
    filesystem: IFilesystem, segment: DamagedSegment, found: dict[Hole, list[Again]]
) -> tuple[Change, list[tuple[int, int]]]:
    """The segment's new bytes, and the offsets (inclusive) that are lost for good."""
    pieces: list[Piece] = []
    lost: list[tuple[int, int]] = []
    holes = segment.holes()
    offset = segment.state.base_offset
    for start, end, first, after in [
        *segment.spans,
        (segment.state.size, segment.state.size, segment.state.end_offset, 0),
    ]:
        if offset < first:
            hole, size = holes.pop(0)
            filled, gone = _filled(filesystem, hole, size, found.get(hole, []))
            pieces += filled
            lost += gone
        if end > start:
            pieces.append(Slice(segment.path, start, end - start))
        offset = after
    again = (
        "the journal's bytes in the place of the damaged ones"
        if not lost
        else "marks in the place of lost messages"
    )
    return Change(segment.path, pieces, again), lost


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
    """How many of the bytes that several lost runs share one of them is given: its messages' headers, if they fit."""
    others = HEADER_BYTES * (len(gone) - 1 - gone.index(part))
    return max(HEADER_BYTES, min(HEADER_BYTES * (part[1] - part[0]), room - others))


def _lost(first: int, end: int, size: int) -> list[Piece]:
    """Frames of ``size`` bytes in all that say that the messages from ``first`` to below ``end`` are lost."""
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
        length, crc, _, _, count, _, _ = HEADER.unpack_from(data)
    except StructError:
        return False
    if not length == len(data) == again.piece.length or count != again.end - again.first:
        return False
    return bool(second_crc32c(data[CRC_START:]) == crc)
