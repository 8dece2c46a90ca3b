"""A search by time that has been decided on the reactor and is carried out elsewhere."""

from __future__ import annotations

from typing import NamedTuple

from journal.log.read_plan import open_log
from journal.log.segment import Segment
from journal.log.segment_index import SegmentIndex, Shelf
from journal.vfs.open_files import OpenFiles


class TimeLookup(NamedTuple):
    """Where in a segment, as it was when this was made, messages of a time begin.

    Nothing is held open before it is run, so that thousands can be made; the segment's file may be gone by then.
    """

    files: OpenFiles
    segment: Segment
    sealed: bool
    shelf: Shelf
    time: int

    def run(self) -> int:
        """At or below the first offset appended at the time or later, by at most a gap of the index.

        Reads an index file, and scans the segment if that is missing. Raises :class:`journal.errors.CorruptSegment`.
        """
        file = open_log(self.files, self.segment)
        try:
            index = SegmentIndex(self.files, self.segment, self.sealed, self.shelf, file.read, now=False)
            return index.offset_for_time(self.time)
        finally:
            self.files.release(file)
