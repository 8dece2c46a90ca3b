"""The forger changes a data directory so that checksums fit, offsets are dense and checkpoints agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from journal.formats import filenames, frame
from journal.formats.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from journal.formats.filenames import SegmentKind
from journal.formats.index import OFFSET_ENTRY, IndexEntries
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_segment_header, seed_of
from journal.formats.store_state import SegmentState, StoreState
from journal.log.segment import Segment, run_on
from journal.records import record
from journal.records.journal_headers import GroupHeader
from journal.records.record import AnyRecord
from journal.vfs.file_window import window
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import FileReader, Group, JournalEntry
from journal.walks.checkpoint_walk import checkpoint_lsns
from journal.walks.journal_walk import surveyed
from journal.walks.segment_walk import FrameEntry, partitions, walk_segment

Frames = list[bytes]


class Held(NamedTuple):
    """A frame of a log, and where it lies."""

    segment: str
    entry: FrameEntry

    @property
    def value(self) -> bytes:
        """What it holds behind key and headers; of a wrapper all that is inside."""
        data = bytes(self.entry.frame)
        return data[frame.HEADER_BYTES + frame.HEADER.unpack_from(data)[7] :]


def newest(path: Path) -> Checkpoint:
    """The newest checkpoint."""
    filesystem = OSFilesystem(path)
    return read_checkpoint(filesystem, checkpoint_lsns(filesystem)[-1])


def store_of(path: Path, topic: str, index: int = 0) -> StoreState:
    """A log as the newest checkpoint has it."""
    return next(s for s in newest(path).stores if (s.topic, s.index) == (topic, index))


def directory_of(store: StoreState) -> str:
    return filenames.partition_directory(store.topic, store.index, store.number)


def log_file(store: StoreState, state: SegmentState, kind: SegmentKind = SegmentKind.LOG) -> str:
    return filenames.segment_file(directory_of(store), state.base_offset, kind)


def held(path: Path, topic: str, index: int = 0) -> list[Held]:
    """All frames of a log, as far as the newest checkpoint has it."""
    store = store_of(path, topic, index)
    found = []
    for state in store.segments:
        file = log_file(store, state)
        walked = walk_segment(OSFilesystem(path), file, state.base_offset, state.size)
        found += [Held(file, each) for each in walked if isinstance(each, FrameEntry)]
    return found


def holding(path: Path, topic: str, index: int, value: bytes) -> Held:
    """The first frame whose value begins so."""
    return next(each for each in held(path, topic, index) if each.value.startswith(value))


def overwrite(path: Path, file: str, at: int, data: bytes) -> None:
    """Put these bytes there, and nothing else."""
    with open(path / file, "r+b") as opened:
        opened.seek(at)
        opened.write(data)


def write(path: Path, file: str, at: int, data: bytes) -> None:
    """Put these bytes there; in a log whose frames are all sound then, let indexes and checkpoints agree."""
    overwrite(path, file, at, data)
    if file.endswith(".log"):
        reseal(path, file)


def reseal(path: Path, file: str) -> None:
    """Let running checksums of index and checkpoints agree with a log, if all its frames are sound."""
    for lsn in checkpoint_lsns(OSFilesystem(path)):
        for store in read_checkpoint(OSFilesystem(path), lsn).stores:
            for state in store.segments:
                if log_file(store, state) == file:
                    _reseal(path, file, Segment.of(store.number, directory_of(store), state))


def _reseal(path: Path, file: str, segment: Segment) -> None:
    walked = list(walk_segment(OSFilesystem(path), file, segment.base_offset, segment.size))
    if not all(isinstance(each, FrameEntry) for each in walked):
        return
    read = OSFilesystem(path).open(file, writable=False).read
    index = path / segment.index_path
    made = b""
    for offset, position, *_ in OFFSET_ENTRY.iter_unpack(index.read_bytes() if index.exists() else b""):
        running = run_on(read, segment.seed, SEGMENT_HEADER_BYTES, position)
        key = OFFSET_ENTRY.pack(offset, position, running, 0)[:-4]
        made += key + crc32c(key, segment.seed).to_bytes(4, "big")
    if made:
        index.write_bytes(made)
    checksum = run_on(read, segment.seed, SEGMENT_HEADER_BYTES, segment.size)

    def changed(store: StoreState) -> StoreState:
        if store.number != segment.number:
            return store
        states = [
            msgspec.structs.replace(each, checksum=checksum)
            if (each.base_offset, each.size) == (segment.base_offset, segment.size)
            else each
            for each in store.segments
        ]
        return msgspec.structs.replace(store, segments=states)

    restate(path, changed)


def flip(path: Path, file: str, at: int) -> None:
    """Turn some bits of one byte; from the end if ``at`` is negative."""
    content = bytearray((path / file).read_bytes())
    content[at] ^= 0x55
    (path / file).write_bytes(bytes(content))


def sealed(data: bytes) -> bytes:
    """A frame with the checksum that fits."""
    return data[:4] + crc32c(data[frame.CRC_START :]).to_bytes(4, "big") + data[8:]


def altered(data: bytes, at: int, new: bytes) -> bytes:
    """A frame with other bytes at that place, and the checksum that fits."""
    return sealed(data[:at] + new + data[at + len(new) :])


def at_time(data: bytes, time: int) -> bytes:
    """The frame with another timestamp."""
    return altered(data, frame.CRC_START, time.to_bytes(8, "big", signed=True))


def numbered(frames: Sequence[bytes], base: int) -> bytes:
    """A run with dense offsets; each frame keeps its append time."""
    data = bytearray(b"".join(frames))
    for position, _, _, count in frame.walk(bytes(data)):
        data[position + 8 : position + 16] = base.to_bytes(8)
        base += count
    return bytes(data)


def forge(path: Path, topic: str, index: int, edit: Callable[[list[Frames]], None]) -> None:
    """Change the frames of a log, segment by segment, and let everything else agree: files, indexes, checkpoints."""
    store = store_of(path, topic, index)
    files = [log_file(store, state) for state in store.segments]
    content: list[Frames] = []
    for state, file in zip(store.segments, files, strict=True):
        walked = walk_segment(OSFilesystem(path), file, state.base_offset, state.size)
        content.append([bytes(each.frame) for each in walked if isinstance(each, FrameEntry)])
    edit(content)
    base = store.segments[0].base_offset
    for state in store.segments:
        for kind in SegmentKind:
            (path / log_file(store, state, kind)).unlink(missing_ok=True)
    made = []
    for frames, old in itertools.zip_longest(content, store.segments, fillvalue=store.segments[-1]):
        if frames:
            made.append(_segment(path, store, old, base, frames))
            base = made[-1].end_offset
    grown = base - store.flushed_offset

    def changed(found: StoreState) -> StoreState:
        if found.number != store.number or found.flushed_offset != store.flushed_offset:
            return found
        return msgspec.structs.replace(
            found, segments=made, flushed_offset=base, end_offset=found.end_offset + grown
        )

    restate(path, changed)


def _segment(path: Path, store: StoreState, old: SegmentState, base: int, frames: Frames) -> SegmentState:
    data = numbered(frames, base)
    end = base + sum(frame.HEADER.unpack_from(each)[5] for each in frames)
    seed = seed_of(old.salt)
    size = SEGMENT_HEADER_BYTES + len(data)
    state = SegmentState(base, size, end, old.first_time, old.last_time, old.salt, crc32c(data, seed))
    entries = IndexEntries()
    entries.add_run(memoryview(data), SEGMENT_HEADER_BYTES, old.first_time)
    running = [crc32c(data[: at - SEGMENT_HEADER_BYTES], seed) for _, at, _ in entries.places]
    offsets, times = entries.packed(seed, running)
    header = pack_segment_header(SegmentHeader(bytes(16), 1, store.number, base, old.salt))
    (path / log_file(store, state)).write_bytes(header + data)
    (path / log_file(store, state, SegmentKind.INDEX)).write_bytes(offsets)
    (path / log_file(store, state, SegmentKind.TIME)).write_bytes(times)
    return state


def restate(path: Path, change: Callable[[StoreState], StoreState | None]) -> None:
    """Change what all checkpoints say of logs; None leaves one out."""
    filesystem = OSFilesystem(path)
    for lsn in checkpoint_lsns(filesystem):
        old = read_checkpoint(filesystem, lsn)
        stores = [new for store in old.stores if (new := change(store)) is not None]
        write_checkpoint(
            filesystem, old.header, {name: iter(rows) for name, rows in old.folds.items()}, stores
        )


def refold(path: Path, name: str, change: Callable[[list], list]) -> None:
    """Change the rows of a fold in all checkpoints."""
    filesystem = OSFilesystem(path)
    for lsn in checkpoint_lsns(filesystem):
        old = read_checkpoint(filesystem, lsn)
        folds = {each: change(rows) if each == name else rows for each, rows in old.folds.items()}
        write_checkpoint(
            filesystem, old.header, {each: iter(rows) for each, rows in folds.items()}, old.stores
        )


def reheaded(path: Path, **fields: int) -> None:
    """Change the header of the newest checkpoint."""
    old = newest(path)
    header = msgspec.structs.replace(old.header, **fields)
    write_checkpoint(
        OSFilesystem(path), header, {name: iter(rows) for name, rows in old.folds.items()}, old.stores
    )


def sections(content: bytes) -> list[int]:
    """Where the sections of a checkpoint begin."""
    layout, position, found = Struct(">II"), 8, []
    while position < len(content):
        found.append(position)
        position += layout.size + layout.unpack_from(content, position)[0]
    return found


def only_partitions(path: Path, topic: str) -> list[str]:
    """Directories of a topic, by number."""
    return [place for name, place in partitions(OSFilesystem(path)) if name.topic == topic]


def rerecord(
    path: Path, wanted: Callable[[AnyRecord], bool], change: Callable[[AnyRecord], AnyRecord]
) -> JournalEntry:
    """Change the first such record of the journal; the checksums of record and group fit again. What it was."""
    filesystem = OSFilesystem(path)
    for file in surveyed(filesystem):
        assert file.header is not None
        with window(filesystem, file.path) as bytes_of:
            reader = FileReader(bytes_of, file.path, file.header)
            for group in reader.groups():
                entries = list(reader.records(group)) if isinstance(group, Group) else []
                for number, entry in enumerate(entries):
                    if wanted(entry.record):
                        records = [(each.record, bytes(each.data)) for each in entries]
                        records[number] = change(entry.record), records[number][1]
                        write(
                            path, file.path, group.position, _group(group.header, records, file.header.salt)
                        )
                        return entry
    raise AssertionError("there is no such record")


def _group(old: GroupHeader, records: list[tuple[AnyRecord, bytes]], salt: int) -> bytes:
    body = b""
    for lsn, (each, data) in enumerate(records, old.first_lsn):
        head = msgspec.msgpack.encode(each)
        rest = len(head).to_bytes(4, "big") + head + data
        crc = crc32c(rest, record.seed(salt, lsn))
        body += (8 + len(rest)).to_bytes(4, "big") + crc.to_bytes(4, "big") + rest
    fields = Struct(">IIQQII").pack(len(body), len(records), old.first_lsn, old.forced_lsn, crc32c(body), 0)
    return b"TXBG" + crc32c(fields, record.seed(salt, old.first_lsn)).to_bytes(4, "big") + fields + body
