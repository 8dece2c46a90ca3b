"""A cursor over a part of a partition's log in its segments, a block at a time, read-only."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from crc32c import crc32c

from journal.check.block_check import Block, blocks_of, failing, proven_frames
from journal.errors import StorageUnavailable, TxBrokerError
from journal.formats.filenames import partition_directory
from journal.formats.frame import HEADER_BYTES
from journal.formats.index import DamagedIndex, above_offset, anchors, floor_offset
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.log.segment import BrokenChain, Segment, header_fault, is_frame_of, walk_headers
from journal.vfs.file_window import opened
from journal.vfs.filesystem import OSFile, OSFilesystem
from spark.source.checkpoints import VERIFY, newest_checkpoint
from spark.source.logs import Log, MessagesLost, lost
from spark.source.message_heads import UnsoundBlock


def _start(block: Block) -> int:
    return block.start.position


class DirectoryFiles:
    """The files of a data directory at ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.filesystem = OSFilesystem(path)

    def open(self, path: str) -> OSFile:
        """Return a file, read-only; raises ``OSError``."""
        return self.filesystem.open(path, writable=False)

    def read_all(self, path: str) -> bytes:
        """Return all bytes of a file; raises ``OSError``."""
        with opened(self.filesystem, path) as file:
            return file.read(0, file.size())


def segments_of(log: Log) -> list[Segment]:
    """Return a log's segments as the checkpoint has them."""
    directory = partition_directory(log.topic, log.index, log.number)
    return [Segment.of(log.number, directory, state) for state in log.segments]


class SegmentCursor:
    """Reads a part of one log from its segments; one file is open at a time."""

    def __init__(self, files: DirectoryFiles, log: Log) -> None:
        self._files = files
        self._log = log
        self._segments = segments_of(log)
        self._segment: Segment | None = None
        self._file: OSFile | None = None
        self._next = (-1, 0)
        """The offset and the position of the frame behind the last taken one."""
        self._blocks: list[Block] = []
        self._proven: set[int] = set()
        """The numbers of the blocks that are proven already."""

    def read(self, offset: int, most: int) -> tuple[bytes, int]:
        """See :class:`spark.source.logs.Cursor`."""
        segment = self._enter(offset)
        try:
            if self._next[0] != offset:
                self._next = self._locate(segment, offset)
            first, position = self._next
            room = segment.size - position
            data = self._bytes(position, self._proven_to(segment, position, min(most, room)) - position)
            length = int.from_bytes(data[:4], "big")
            if len(data) < length <= room:
                data = self._bytes(position, length)
            if not HEADER_BYTES <= length <= len(data):
                raise BrokenChain(
                    f"no whole frame of offset {first} is there, of {room} bytes", position, offset
                )
        except BrokenChain as broken:
            raise self._lost(offset, broken.position, str(broken), broken.next_offset) from None
        return data, first

    def advance(self, taken: int, offset: int) -> None:
        """See :class:`spark.source.logs.Cursor`."""
        self._next = offset, self._next[1] + taken

    def damaged(self, fault: UnsoundBlock) -> MessagesLost:
        """See :class:`spark.source.logs.Cursor`."""
        position = self._next[1] + fault.position
        self._next = (-1, 0)
        return self._lost(fault.offset, position, str(fault), fault.end)

    def close(self) -> None:
        """See :class:`spark.source.logs.Cursor`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _enter(self, offset: int) -> Segment:
        """Open the segment that holds ``offset``."""
        segment = self._segment
        if (
            segment is not None
            and self._file is not None
            and segment.base_offset <= offset < segment.end_offset
        ):
            return segment
        self.close()
        holding = [each for each in self._segments if each.base_offset <= offset < each.end_offset]
        if not holding:
            after = [each.base_offset for each in self._segments if each.base_offset > offset]
            last = min(after, default=self._log.end) - 1
            raise lost(self._log, offset, last, "no segment that the checkpoint knows holds them", VERIFY)
        self._segment = segment = holding[0]
        self._next = (segment.base_offset, SEGMENT_HEADER_BYTES) if offset == segment.base_offset else (-1, 0)
        try:
            self._file = self._files.open(segment.path)
        except FileNotFoundError:
            raise self._gone(segment, offset) from None
        except OSError as error:
            raise self._unreadable(error) from error
        fault = header_fault(segment, self._bytes(0, SEGMENT_HEADER_BYTES))
        if fault is not None and fault.foreign:
            self.close()
            raise self._lost(offset, 0, fault.what, segment.end_offset)
        known = anchors(self._index(segment), segment.seed, segment.end_offset, segment.size)
        self._blocks, self._proven = blocks_of(segment.state(), known), set()
        return segment

    def _proven_to(self, segment: Segment, position: int, length: int) -> int:
        """Where the bytes end, of so many from ``position`` on, that are what was written there.

        Compares the blocks that hold them with their running checksums, each once. A frame that fails its own checksum
        is for who reads it; this is about others' bytes. Raises :class:`BrokenChain` if the first block has some.
        """
        first = bisect_right(self._blocks, position, key=_start) - 1
        last = bisect_left(self._blocks, position + length, key=_start)
        new = [number for number in range(first, last) if number not in self._proven]
        wrong = failing(self._bytes, [self._blocks[number] for number in new], lambda _: None, crc32c)
        block = next((each for each in wrong if proven_frames(self._bytes, each) is None), None)
        if block is None:
            self._proven.update(new)
            return position + length
        if not any(failing(self._bytes, blocks_of(segment.state(), ()), lambda _: None, crc32c)):
            self._proven.update(range(len(self._blocks)))  # the index is wrong, the log is not
            return position + length
        begin, end = block
        self._proven.update(number for number in new if self._blocks[number].end.position <= begin.position)
        if begin.position > position:
            return begin.position
        what = f"the {end.position - begin.position} bytes from there on fail their checksum"
        raise BrokenChain(what, begin.position, begin.offset, end.offset)

    def _bytes(self, position: int, length: int) -> bytes:
        assert self._file is not None
        try:
            return self._file.read(position, length)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StorageUnavailable:
        assert self._segment is not None
        return StorageUnavailable(
            f"{self._segment.path}, which holds offsets of {self._log.name} from {self._segment.base_offset} on, "
            f"cannot be read: {error.strerror}; nothing was changed. See to the disk or to the rights, then run the "
            "query again"
        )

    def _index(self, segment: Segment) -> bytes:
        try:
            return self._files.read_all(segment.index_path)
        except OSError:
            return b""

    def _locate(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the frame that holds ``offset``; raises :class:`BrokenChain`."""
        start = (segment.base_offset, SEGMENT_HEADER_BYTES)
        try:
            hint = floor_offset(self._index(segment), segment.seed, offset)
        except DamagedIndex:
            hint = None
        if hint is not None and is_frame_of(self._bytes, segment, *hint):
            start = hint
        for place in walk_headers(self._bytes, segment, *start):
            if offset < place.offset + place.messages:
                return place.offset, place.position
        raise BrokenChain(f"no frame holds offset {offset}", segment.size, offset)

    def _lost(self, offset: int, position: int, what: str, behind: int | None) -> MessagesLost:
        """Return the error for damage: everything is lost up to the next frame that can be found."""
        segment = self._segment
        assert segment is not None
        end = min(behind or self._next_sound(segment, offset), self._log.end)
        why = f"{segment.path} is damaged at byte {position}: {what}"
        return lost(self._log, offset, max(end, offset + 1) - 1, why, VERIFY)

    def _next_sound(self, segment: Segment, offset: int) -> int:
        data, seed = self._index(segment), segment.seed
        try:
            entry = above_offset(data, seed, offset)
            while entry and not is_frame_of(self._bytes, segment, *entry):
                entry = above_offset(data, seed, entry[0])
        except DamagedIndex:
            entry = None
        return entry[0] if entry else segment.end_offset

    def _gone(self, segment: Segment, offset: int) -> MessagesLost:
        """Return the error for a segment whose file is missing, with the reason if a newer checkpoint shows it."""
        log = self._log
        last = min(segment.end_offset, log.end) - 1
        try:
            stores = {store.number: store for store in newest_checkpoint(self._files.path).stores}
        except TxBrokerError as error:
            return lost(log, offset, last, f"{segment.path} is gone, and no checkpoint tells why ({error})")
        if log.number not in stores:
            return lost(log, offset, log.end - 1, "the topic has been deleted since the query was planned")
        store = stores[log.number]
        start = store.start_offset
        if start > offset:
            why = f"since the query was planned retention has taken all below offset {start}"
            return lost(log, offset, min(start, log.end) - 1, why)
        known = [Segment.of(store.number, store.directory, each).path for each in store.segments]
        if segment.path not in known:
            why = f"{segment.path} was compacted since the query was planned"
            return lost(log, offset, last, why, "Run the query again")
        return lost(log, offset, last, f"{segment.path} is gone, though no retention took it", VERIFY)
