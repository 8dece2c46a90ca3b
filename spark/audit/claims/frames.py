"""The frames of a slice, proven with a second implementation of the checksum: block by block, and around damage."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from journal.check.block_check import Block, failing, known_places
from journal.check.index_check import misled
from journal.constants import MIB
from journal.errors import InvalidFrame
from journal.formats.filenames import SegmentKind
from journal.formats.frame import (
    CRC_START,
    GAP,
    HEADER,
    HEADER_BYTES,
    LOST,
    STAMP_START,
    TOMBSTONE,
    VERSION,
    WRAPPER,
)
from journal.formats.frame_check import count_in_wrapper
from journal.formats.frame_times import times_and_sizes
from journal.formats.index import Anchor
from journal.interfaces import IFile
from journal.vfs.file_window import file_size, opened
from journal.vfs.filesystem import OSFilesystem
from journal.walks.findings import Finding
from journal.walks.segment_walk import FrameEntry, is_known_flag, walk_segment
from spark.audit.claims.checksums import second_crc32c
from spark.audit.claims.facts import sum_of_times
from spark.audit.claims.slices import Slice
from spark.frame_columns import Numbers, headers_at

BLOCK_BYTES: Final = 4 * MIB
MAX_FRAME: Final = 32 * MIB

_LENGTH = Struct(">I").unpack_from
_STAMP = np.arange(STAMP_START, CRC_START)


class Frames(NamedTuple):
    """Sound frames that follow each other: ``start`` within ``data``, which lies at ``at`` in the file."""

    data: bytes
    at: int
    start: Numbers
    length: Numbers
    offset: Numbers
    held: Numbers
    appended: Numbers
    timestamp: Numbers
    flag: Numbers

    def unstamped(self) -> bytearray:
        """Return the bytes without ids and append times, as they were sent."""
        found = bytearray(self.data)
        octets = np.frombuffer(found, np.uint8)
        octets[(self.start[:, None] + _STAMP).ravel()] = 0
        return found

    def sum_of_times(self, low: int, high: int) -> int:
        """Return the sum of the append times of the messages in frames ``low`` to below ``high``; see
        :func:`spark.audit.claims.facts.sum_of_times`.
        """
        products = self.held[low:high].astype(np.uint64) * self.appended[low:high].astype(np.uint64)
        return sum_of_times(1, int(products.sum()))

    def times(self) -> tuple[Numbers, Numbers]:
        """Yield the time of each message, and its bytes without the header; wrappers are opened."""
        if not (self.flag & WRAPPER).any():
            return self.timestamp, self.length - HEADER_BYTES
        stop = int(self.start[-1] + self.length[-1])
        pairs = list(times_and_sizes(self.data[int(self.start[0]) : stop]))
        both = np.array(pairs, np.int64)
        return both[:, 0], both[:, 1]


class Gap(NamedTuple):
    """Messages that a compaction removed: offsets ``first`` to ``last`` (inclusive), at ``position``."""

    first: int
    last: int
    position: int


class Damage(NamedTuple):
    """A part of a slice that is no sound frame: offsets ``first`` to ``last`` (inclusive), at ``position``."""

    first: int
    last: int
    position: int
    problem: str


def walk(filesystem: OSFilesystem, part: Slice) -> Iterator[Frames | Gap | Damage | Finding]:
    """Walk through a slice in order. If it does not end where the next one begins, that is damage, too.

    So are bytes that the system cannot read. A finding is of the segment's index.
    """
    position, offset = part.position, part.first
    try:
        for each in _walk(filesystem, part):
            if isinstance(each, Frames):
                yield from _around_gaps(each)
            else:
                yield each
            if isinstance(each, Finding):
                continue
            if isinstance(each, Frames):
                position = each.at + int(each.start[-1] + each.length[-1])
                offset = int(each.offset[-1] + each.held[-1])
            else:
                position, offset = each.position, each.last + 1
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = "the segment's file is missing" if missing else f"it cannot be read: {error.strerror}"
        yield Damage(min(offset, part.end - 1), part.end - 1, position, what)


def _around_gaps(frames: Frames) -> Iterator[Frames | Gap]:
    """Yield the runs of messages, and the gaps between them."""
    is_gap = (frames.flag & GAP) != 0
    if not is_gap.any():
        yield frames
        return
    edges = [0, *(np.flatnonzero(np.diff(is_gap)) + 1).tolist(), len(is_gap)]
    for low, high in pairwise(edges):
        if is_gap[low]:
            last = int(frames.offset[high - 1] + frames.held[high - 1]) - 1
            yield Gap(int(frames.offset[low]), last, frames.at + int(frames.start[low]))
        else:
            yield Frames(frames.data, frames.at, *(column[low:high] for column in frames[2:]))


def _walk(filesystem: OSFilesystem, part: Slice) -> Iterator[Frames | Damage | Finding]:
    with opened(filesystem, part.path) as file:
        proof = _proof(filesystem, file, part)
        if proof.misled is not None:
            yield proof.misled
        position, offset = part.position, part.first
        while position < part.end_position:
            frames, wrong = _block(file, position, offset, part.end_position, proven=proof.proven)
            if len(frames.start):
                yield frames
                position += int(frames.start[-1] + frames.length[-1])
                offset = int(frames.offset[-1] + frames.held[-1])
            if wrong:
                found = yield from _over(filesystem, part, position, offset)
                if found is None:
                    return
                position, offset = found
        if (position, offset) != (part.end_position, part.end):
            what = f"its frames end at byte {position} with offset {offset - 1}, what follows begins with {part.end}"
            yield Damage(min(offset, part.end), max(offset, part.end) - 1, position, what)
        yield from proof.others


class _Proof(NamedTuple):
    """The proof of a slice by running checksums. If it is ``proven``, no frame's own checksum needs to be verified.

    ``others`` are blocks that are not as written although each of their frames fulfils its checksum; in other blocks
    frames are damaged. ``misled``: the log is as it was written, and its index contradicts it.
    """

    proven: bool
    others: list[Damage]
    misled: Finding | None = None


def _proof(filesystem: OSFilesystem, file: IFile, part: Slice) -> _Proof:
    known = known_places(filesystem, part.path, part.salt, part.end, part.end_position)
    begin = Anchor(part.first, part.position, part.running)
    end = Anchor(part.end, part.end_position, part.end_running)
    inside = [each for each in known if each.position > part.position]
    wrong = list(failing(file.read, [Block(*pair) for pair in pairwise([begin, *inside, end])], _nobody))
    if not wrong:
        return _Proof(True, [])
    if not any(failing(file.read, [Block(begin, end)], _nobody)):
        index = part.path.removesuffix(SegmentKind.LOG.value) + SegmentKind.INDEX.value
        return _Proof(True, [], misled(index, known, wrong))
    return _Proof(False, [each for block in wrong for each in _of_others(filesystem, part, block)])


def _nobody(_: int) -> None:
    """Ignore the count."""


def _of_others(filesystem: OSFilesystem, part: Slice, block: Block) -> Iterator[Damage]:
    """Return the block as damage, if nothing else in it is damaged."""
    start, end = block
    at = start.position
    for each in walk_segment(filesystem, part.path, start.offset, end.position, at):
        if not isinstance(each, FrameEntry):
            return
        at = each.position + each.length
    if at == end.position:
        what = (
            f"the {end.position - start.position} bytes from there on fail their checksum, though every frame fulfils "
            "its own: some are another log's"
        )
        yield Damage(start.offset, end.offset - 1, start.position, what)


def _over(
    filesystem: OSFilesystem, part: Slice, position: int, offset: int
) -> Generator[Damage, None, tuple[int, int] | None]:
    """Yield the damage at that position; return where the next sound frame is, None if there is none."""
    damages: list[Finding] = []
    for each in walk_segment(filesystem, part.path, offset, part.end_position, position):
        if isinstance(each, FrameEntry):
            problem = _content(each.frame)
            if not problem:
                return each.position, each.offset
            yield Damage(each.offset, each.offset + each.messages - 1, each.position, problem)
            continue
        damages.append(each)
        last = each.affects.last_offset
        yield Damage(offset, part.end - 1 if last is None else last, each.position, each.problem)
        offset = part.end if last is None else last + 1
    size = min(file_size(filesystem, part.path), part.end_position)
    if size < part.end_position and not any(each.affects.last_offset is None for each in damages):
        what = f"the file ends at byte {size}, the checkpoint has {part.size} bytes of it"
        yield Damage(min(offset, part.end - 1), part.end - 1, size, what)
    return None


def _block(file: IFile, position: int, offset: int, end: int, proven: bool) -> tuple[Frames, bool]:
    """Return the sound frames from there on, as many as a block holds; and whether something else follows them
    there.
    """
    data = file.read(position, min(BLOCK_BYTES, end - position))
    if len(data) >= 4 and len(data) < (length := _LENGTH(data)[0]) <= min(MAX_FRAME, end - position):
        data = file.read(position, length)
    starts: list[int] = []
    at, room = 0, len(data)
    broken = False
    while at + HEADER_BYTES <= room:
        length = _LENGTH(data, at)[0]
        if length < HEADER_BYTES or length > MAX_FRAME:
            broken = True
            break
        if at + length > room:
            break
        starts.append(at)
        at += length
    head = headers_at(data, starts)
    start, length_of = np.array(starts, np.int64), head["length"].astype(np.int64)
    count, flag = head["count"].astype(np.int64), head["flag"].astype(np.int64)
    offsets = offset + np.cumsum(count) - count
    wrong = (head["id"].astype(np.int64) != offsets) | (count == 0)
    if not proven:
        ends = (start + length_of).tolist()
        bodies = [data[a + CRC_START : b] for a, b in zip(starts, ends, strict=True)]
        wrong |= np.fromiter(map(second_crc32c, bodies), np.uint32, len(starts)) != head["crc"]
    wrong |= _odd(data, head, start, length_of)
    sound = int(np.argmax(wrong)) if wrong.any() else len(starts)
    # No more bytes, or not even one frame in all of them: there is something that is no frame.
    stuck = broken or sound < len(starts) or not starts or len(data) < min(BLOCK_BYTES, end - position)
    frames = Frames(
        data, position, start[:sound], length_of[:sound], offsets[:sound], count[:sound],
        head["appended"].astype(np.int64)[:sound], head["timestamp"].astype(np.int64)[:sound], flag[:sound],
    )  # fmt: skip
    return frames, bool(stuck)


def _odd(data: bytes, head: npt.NDArray[np.void], start: Numbers, length: Numbers) -> npt.NDArray[np.bool_]:
    """Return the frames that hold what no frame may hold, although their checksums agree."""
    flag, attribute = head["flag"], head["attribute"].astype(np.int64)
    odd = attribute > length - HEADER_BYTES
    special = (flag != VERSION) | (head["count"] != 1)
    for at in np.flatnonzero(special).tolist():
        frame = memoryview(data)[int(start[at]) : int(start[at] + length[at])]
        odd[at] = odd[at] or bool(_content(frame))
    return odd


def _content(frame: memoryview) -> str:
    """Return what is wrong with a frame whose checksum holds; empty if nothing."""
    *_, count, flag, attribute = HEADER.unpack_from(frame)
    if attribute > len(frame) - HEADER_BYTES:
        return f"it says {attribute} attribute bytes, {len(frame) - HEADER_BYTES} are there"
    if flag & GAP:
        return ""
    if flag & LOST:
        return "the messages that stood there were lost before a repair, see repairs.json"
    if not is_known_flag(flag):
        return f"its flag is {flag:#x}, which is not known"
    if flag & WRAPPER:
        try:
            held = count_in_wrapper(frame)
        except InvalidFrame as error:
            return str(error).removesuffix("; nothing was stored")
        return "" if held == count else f"it is a wrapper of {held} messages and says {count}"
    if count != 1:
        return f"it says {count} messages, it is one"
    if flag & TOMBSTONE and len(frame) != HEADER_BYTES + attribute:
        return "it is a tombstone with a value"
    return ""
