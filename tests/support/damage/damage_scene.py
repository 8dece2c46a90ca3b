"""The scene of damages: the damaged store's files and content, and which bytes of each file carry information.

The latter is taken from the documents and not from the code that reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from struct import unpack_from

from journal.constants import BLOCK
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.testing import MemoryFilesystem
from tests.support.damage.damaged_store import DamagedStore, Found, Verdict, built, judged, wrong
from tests.support.engine_room import contents

FILE_HEADER = 56


GROUP_HEADER = 40


class Case:
    """The store before the damage: its files, and its content."""

    def __init__(self) -> None:
        self.store: DamagedStore = built()
        self.files = contents(self.store.disk())
        verdict = judged(self.store.disk())
        assert verdict.silent, verdict
        assert verdict.found is not None
        self.truth: Found = verdict.found
        assert wrong(verdict, self.truth, self.store) == ""

    def turned(self, path: str, bit: int) -> Verdict:
        """Return the verdict on the store with one bit turned."""
        disk = self.store.disk()
        place = bit // 8
        put(disk, path, place, bytes([self.files[path][place] ^ 1 << bit % 8]))
        return self.judged(disk)

    def judged(self, disk: MemoryFilesystem) -> Verdict:
        """Return the verdict; nothing that was returned may be wrong."""
        verdict = judged(disk)
        said = wrong(verdict, self.truth, self.store)
        assert not said, said
        return verdict

    @property
    def journals(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".journal"))

    @property
    def needed(self) -> list[str]:
        """Return the journal files that a start from the newest checkpoint reads."""
        newest = max(lsn_of(path) for path in self.files if path.endswith(".checkpoint"))
        first = max(lsn_of(path) for path in self.journals if lsn_of(path) <= newest + 1)
        return [path for path in self.journals if lsn_of(path) >= first]


@cache
def case() -> Case:
    return Case()


def lsn_of(path: str) -> int:
    return int(re.findall(r"\d{32}", path)[-1])


def put(disk: MemoryFilesystem, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.write_some(position, [data])
    file.force()


def telling(path: str) -> list[range]:
    """Return the ranges of a file's bytes that a start, or a read, needs undamaged."""
    data = case().files[path]
    kind = path.rpartition(".")[2]
    if path in case().needed:
        return [range(FILE_HEADER), range(BLOCK, BLOCK + FILE_HEADER), *groups(data)]
    if kind == "staged":  # a start works without the header: verification and repair need it
        return [range(STAGED_HEADER_BYTES, len(data))]
    if kind in ("checkpoint", "index", "time") or path in ("txbroker.version", "witness"):
        return [range(len(data))]
    if kind == "log" and "/gone-" not in path:
        return frames_of(path, data)
    return []  # lock, ballast, spare and recycled files, journal below the newest checkpoint, deleted topics


def groups(data: bytes) -> Iterator[range]:
    """Return the groups of a journal file, headers and records, without the rest of their last block."""
    position, lsn = 2 * BLOCK, 0
    while data[position : position + 4] == b"TXBG":
        length, _, first = unpack_from(">IIQ", data, position + 8)
        if first < lsn:
            return  # left by an earlier use of the file
        lsn = first
        yield range(position, position + GROUP_HEADER + length)
        position += -(-(GROUP_HEADER + length) // BLOCK) * BLOCK


def frames_of(path: str, data: bytes) -> list[range]:
    """Return the header, and all bytes of frames in the log but their append times, which no checksum of a frame
    covers; of those below its start only what leads to the next one.
    """
    start = next(case().truth.logs[name][0] for name in case().truth.logs if f"/{name}/" in path)
    position, found = SEGMENT_HEADER_BYTES, [range(SEGMENT_HEADER_BYTES)]
    while position < len(data):
        [length, _, offset] = unpack_from(">IIQ", data, position)
        if offset >= start:
            parts = (0, 16), (24, length)
        else:
            parts = (0, 4), (8, 16), (32, 36)
        found += [range(position + low, position + high) for low, high in parts]
        position += length
    return found


def used(data: bytes) -> int:
    """Return where the content of a file ends; the end of a file that has only zeros."""
    if data.startswith(b"TXBJRNL"):
        return max((group.stop for group in groups(data)), default=FILE_HEADER)
    return len(data.rstrip(b"\0")) or len(data)
