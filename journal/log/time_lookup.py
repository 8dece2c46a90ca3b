"""A search by time that has been planned on the reactor and runs on another thread."""

from __future__ import annotations

from typing import NamedTuple

from journal.log.read_plan import open_log
from journal.log.segment import Segment
from journal.log.segment_index import SegmentIndex, Shelf
from journal.vfs.open_files import OpenFiles


class TimeLookup(NamedTuple):
    """A search in a segment, as it was when this was made, for the messages of a time.

    It holds nothing open before it runs, so that thousands can be made; the segment's file may be gone by then.
    """

    files: OpenFiles
    segment: Segment
    sealed: bool
    shelf: Shelf
    time: int

    def run(self) -> int:
        """Return an offset at or below the first one appended at the time or later, by at most a gap of the index.

        Reads an index file, and scans the segment if that is missing. Raises :class:`journal.errors.CorruptSegment`.
        """
        file = open_log(self.files, self.segment)
        try:
            index = SegmentIndex(self.files, self.segment, self.sealed, self.shelf, file.read, now=False)
            return index.offset_for_time(self.time)
        finally:
            self.files.release(file)
