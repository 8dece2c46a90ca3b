"""A check whether a log's files hold sound messages that the journal does not prove, which no crash leaves.

A flush writes only messages that are forced in the journal, and the journal keeps them until a checkpoint has them. So
files that go further than checkpoint and journal are of a later moment than these: a part of the directory was put back
from a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from journal.errors import NEXT_STEP, UnprovenLog
from journal.formats.filenames import SegmentKind, parse_segment_file
from journal.formats.frame import is_sound
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import SegmentState
from journal.interfaces import IFilesystem
from journal.log.segment import BrokenChain, Segment, walk_headers
from journal.vfs.file_window import opened
from journal.words import span

_NO_END = 1 << 63


class Beyond(NamedTuple):
    """A file of a log with bytes that no checkpoint has: from ``position`` on, where ``offset`` begins."""

    segment: Segment
    offset: int
    position: int

    @property
    def is_whole(self) -> bool:
        """Whether no checkpoint has any part of the file."""
        return self.position == SEGMENT_HEADER_BYTES


class Unproven(NamedTuple):
    """Sound messages that lie at ``position`` and behind it, in this file. Offsets are inclusive."""

    path: str
    position: int
    first_offset: int
    last_offset: int

    def problem(self, end: int) -> str:
        """Return what is wrong with them, in a text about the file; the journal knows the log up to ``end``."""
        known = f"up to offset {end - 1}" if end else "without any message"
        return (
            f"sound messages of {span('offset', self.first_offset, self.last_offset)} begin there, but journal and "
            f"checkpoints know the log {known}: no crash leaves that, they are of an earlier moment than this file"
        )

    def refusal(self, end: int) -> UnprovenLog:
        """Return the error that stops a start."""
        return UnprovenLog(
            f"{self.path} at byte {self.position}: {self.problem(end)}. They may have been acknowledged, and a start "
            "would delete them, so it is refused; no message was changed. Put journal/, checkpoints/, staged/ and "
            "witness back as they were when partitions/ was written, or the whole directory from one copy. To go on "
            f"without these messages: 'txbroker repair DIR' names them, and keeps them as evidence. {NEXT_STEP}",
            self.path,
            self.position,
            self.first_offset,
            self.last_offset,
        )


def files_beyond(
    number: int, directory: str, names: Iterable[str], states: Sequence[SegmentState | Segment]
) -> list[Beyond]:
    """Return files that may have bytes behind the segments of a checkpoint: the last one's file, and later ones."""
    last = states[-1] if states else None
    found: list[Beyond] = []
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is None or parsed.kind is not SegmentKind.LOG:
            continue
        base = parsed.base_offset
        if last is not None and base == last.base_offset:
            if parsed.epoch:
                continue  # made of that segment once it was sealed
            found.append(Beyond(Segment(number, directory, base), last.end_offset, last.size))
        elif last is None or base > last.base_offset:
            segment = Segment(number, directory, base, epoch=parsed.epoch)
            found.append(Beyond(segment, base, SEGMENT_HEADER_BYTES))
    return found


def unproven(filesystem: IFilesystem, beyond: Beyond, end: int) -> Unproven | None:
    """Return the sound messages from offset ``end`` on behind the known part of the file; None if there are none.

    They end where the chain of frames breaks: bytes behind that are torn, or older than the file's name.
    """
    with opened(filesystem, beyond.segment.path) as file:
        segment = beyond.segment.grown(file.size(), _NO_END, 0, 0)
        found: Unproven | None = None
        try:
            for place in walk_headers(file.read, segment, beyond.offset, beyond.position):
                after = place.offset + place.messages
                if after <= end:
                    continue
                if not is_sound(memoryview(file.read(place.position, place.length))):
                    return found
                if found is None:
                    found = Unproven(segment.path, place.position, max(end, place.offset), after - 1)
                found = found._replace(last_offset=after - 1)
        except BrokenChain:
            return found
        return found
