"""The bytes of a journal file around its records: the file's header and the headers of its groups.

A file begins with two copies of its header, each in a block of its own. Groups follow, each on a block
boundary: a header of 40 bytes, then its records, then whatever the block held before. See docs/file_format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.constants import BLOCK
from journal.errors import NEXT_STEP, CorruptJournal
from journal.formats import record
from journal.vfs.file_window import FileWindow

FILE_MAGIC = b"TXBJRNL\x01"
GROUP_MAGIC = 0x54584247
_MAGIC_BYTE = GROUP_MAGIC >> 24
_LOOKED_AT = 256 * BLOCK
HEADER_COPIES = 2
FIRST_GROUP = HEADER_COPIES * BLOCK
"""Where the first group of a file begins."""

_FILE = Struct(">8sIQQIQQQ")
_GROUP = Struct(">IIIIQQII")
GROUP_HEADER_BYTES = _GROUP.size
GROUP_CRC_END = 8
_CRC = Struct(">I")

assert GROUP_HEADER_BYTES == 40

Checksum = Callable[..., int]
"""An implementation of CRC-32C: ``checksum(data, seed=0)``."""


class FileHeader(NamedTuple):
    """What a journal file says of itself. ``previous_end`` is the LSN after the last valid one before it.

    ``previous_first`` 0 marks the first file of all. ``salt`` seeds every checksum of the start that wrote it.
    ``size`` is that of the file when its header was forced, in bytes; it is never shorter again.
    """

    first_lsn: int
    start: int
    salt: int
    previous_first: int
    previous_end: int
    size: int = FIRST_GROUP


class GroupHeader(NamedTuple):
    """A group: ``length`` bytes of ``records`` records follow; ``forced_lsn`` was on disk before it was written."""

    length: int
    records: int
    first_lsn: int
    forced_lsn: int
    body_crc: int


def pack_file_header(header: FileHeader) -> bytes:
    """Return the blocks at the start of a file: the header, twice."""
    packed = _FILE.pack(FILE_MAGIC, 0, *header)
    crc = crc32c(packed[12:], crc32c(packed[:8]))
    packed = packed[:8] + _CRC.pack(crc) + packed[12:]
    return packed.ljust(BLOCK, b"\0") * HEADER_COPIES


def header_copies(data: bytes, checksum: Checksum = crc32c) -> list[FileHeader | None]:
    """The copies of the header at the start of a file's bytes; None for each that is damaged."""
    copies: list[FileHeader | None] = []
    for copy in range(HEADER_COPIES):
        packed = bytes(data[copy * BLOCK : copy * BLOCK + _FILE.size])
        fields = _FILE.unpack(packed) if len(packed) == _FILE.size else (b"", 0)
        sound = fields[0] == FILE_MAGIC and fields[1] == checksum(packed[12:], checksum(packed[:8]))
        copies.append(FileHeader(*fields[2:]) if sound else None)
    return copies


def unpack_file_header(data: bytes, path: str, checksum: Checksum = crc32c) -> FileHeader:
    """Read the header from the start of a file's bytes, from whichever copy is sound.

    Raises :class:`CorruptJournal` if neither is: a file gets its name only after its header has been forced.
    """
    for header in header_copies(data, checksum):
        if header is not None:
            return header
    raise CorruptJournal(
        f"{path} is damaged at 0 and at {BLOCK}: both copies of its header are, so none of its records can be checked. "
        f"Nothing was changed. Restore the file from a copy. {NEXT_STEP}",
        path,
    )


def pack_group_header(
    length: int, count: int, first_lsn: int, forced_lsn: int, body_crc: int, salt: int
) -> bytes:
    """Return the header of a group; its checksum is seeded with the start's salt and the group's first LSN."""
    body = _GROUP.pack(GROUP_MAGIC, 0, length, count, first_lsn, forced_lsn, body_crc, 0)
    crc = crc32c(body[GROUP_CRC_END:], record.seed(salt, first_lsn))
    return body[:4] + _CRC.pack(crc) + body[GROUP_CRC_END:]


def unpack_group_header(
    view: memoryview, position: int, salt: int, checksum: Checksum = crc32c
) -> GroupHeader | None:
    """Read the group header at a block boundary; None if there is no sound one of this start."""
    if len(view) - position < GROUP_HEADER_BYTES:
        return None
    magic, crc, length, count, first_lsn, forced_lsn, body_crc, reserved = _GROUP.unpack_from(view, position)
    if magic != GROUP_MAGIC or reserved or not count or not length:
        return None
    covered = view[position + GROUP_CRC_END : position + GROUP_HEADER_BYTES]
    if checksum(covered, record.seed(salt, first_lsn)) != crc:
        return None
    return GroupHeader(length, count, first_lsn, forced_lsn, body_crc)


def body_checksum(pieces: list[bytes | memoryview]) -> int:
    """CRC-32C over a group's records; lets a whole group be checked in one call."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc


def blocks(length: int) -> int:
    """``length`` rounded up to whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


class Group(NamedTuple):
    """A sound group found in a file: where its header is, and what it says."""

    position: int
    header: GroupHeader

    @property
    def next_lsn(self) -> int:
        """The LSN after its last record."""
        return self.header.first_lsn + self.header.records

    @property
    def end(self) -> int:
        """The block boundary after it."""
        return self.position + blocks(GROUP_HEADER_BYTES + self.header.length)


class FileScan:
    """The sound groups of one file's bytes, in order, and why and where they end.

    ``next_lsn`` is the LSN after the last sound record, ``proven`` the highest LSN known to have been forced,
    ``stop`` the position at which the sound part ends. ``partial`` is the number of sound records at the start of
    the group at ``stop`` if its header is sound but its body is not, which ``is_torn`` says (their LSNs are below
    ``next_lsn``). ``header_is_damaged`` if a group began there whose header is not what was written: no crash leaves
    such a one, for it lies in one sector.
    """

    def __init__(
        self, data: bytes | FileWindow, path: str, header: FileHeader, end_lsn: int | None = None
    ) -> None:
        self.path = path
        self.header = header
        self.groups: list[Group] = []
        self.next_lsn = header.first_lsn
        self.proven = header.previous_end - 1
        self.partial = 0
        self.problem = ""
        self.is_torn = False
        self.header_is_damaged = False
        self.end_lsn = end_lsn
        self._torn: Group | None = None
        self._window = window_of(data)
        self.stop = FIRST_GROUP
        self._scan(end_lsn)

    @property
    def located(self) -> list[Group]:
        """All groups, the torn one at the end included, to find records by their LSN."""
        return [*self.groups, self._torn] if self._torn is not None else self.groups

    def forget_data(self) -> None:
        """Let the file's bytes go; what was found stays."""
        self._window = FileWindow.of(b"")

    def _scan(self, end_lsn: int | None) -> None:
        position = FIRST_GROUP
        while end_lsn is None or self.next_lsn < end_lsn:
            header = self._header_at(position)
            if header is None or header.first_lsn != self.next_lsn:
                self.problem = f"no sound group of LSN {self.next_lsn} at {position}"
                self.header_is_damaged = header is None and self._resembles_group(position)
                break
            group = Group(position, header)
            self.proven = max(self.proven, header.forced_lsn)
            if not self._is_sound(group):
                self.is_torn = True
                self._take_partial(group)
                break
            self.groups.append(group)
            self.next_lsn = group.next_lsn
            position = group.end
        self.stop = position

    def _resembles_group(self, position: int) -> bool:
        """Whether two of the three fields that tell the next group from other bytes are its own.

        Groups left by an earlier use of the file have only the magic: what they say was forced is below this file.
        """
        found = self._window.at(position, GROUP_HEADER_BYTES)
        if len(found) < GROUP_HEADER_BYTES:
            return False
        magic, _, _, _, first_lsn, forced_lsn, _, _ = _GROUP.unpack_from(found)
        in_file = self.header.previous_end - 1 <= forced_lsn < self.next_lsn
        return bool(sum((magic == GROUP_MAGIC, first_lsn == self.next_lsn, in_file)) >= 2)

    def _header_at(self, position: int) -> GroupHeader | None:
        return unpack_group_header(self._window.at(position, GROUP_HEADER_BYTES), 0, self.header.salt)

    def _is_sound(self, group: Group) -> bool:
        body = _body(self._window, group)
        return len(body) == group.header.length and crc32c(body) == group.header.body_crc

    def _take_partial(self, group: Group) -> None:
        """The body is not what was written: take the sound records before the first bad one."""
        try:
            for _ in self._records(self._window, group, group.header.records):
                self.partial += 1
                self.next_lsn += 1
        except CorruptJournal as error:
            self.problem = str(error)
        else:
            # Each record is sound but the body's checksum is not: the bytes after the records differ.
            self.problem = f"the group at {group.position} fails its checksum"

        if self.partial:
            self._torn = group

    def _records(self, window: FileWindow, group: Group, count: int) -> Iterator[record.Unpacked]:
        body, position = _body(window, group), 0
        start = group.position + GROUP_HEADER_BYTES
        for lsn in range(group.header.first_lsn, group.header.first_lsn + count):
            unpacked = record.unpack(body, position, record.seed(self.header.salt, lsn), self.path, start)
            yield unpacked
            position += unpacked.length

    def records(self, data: bytes | FileWindow, from_lsn: int = 0) -> Iterator[tuple[int, record.Unpacked]]:
        """Yield (LSN, record) of every sound record at ``from_lsn`` or after; ``data`` is the file, read again."""
        window = window_of(data)
        for group in self.located:
            yield from self.records_of(group, window, from_lsn)

    def records_of(
        self, group: Group, window: FileWindow, from_lsn: int
    ) -> Iterator[tuple[int, record.Unpacked]]:
        """Yield (LSN, record) of the sound records of one group at ``from_lsn`` or after."""
        count = self.partial if group is self._torn else group.header.records
        if group.header.first_lsn + count > from_lsn:
            for lsn, unpacked in enumerate(self._records(window, group, count), group.header.first_lsn):
                if self.end_lsn is not None and lsn >= self.end_lsn:
                    return
                if lsn >= from_lsn:
                    yield lsn, unpacked

    def whole(self, group: Group, window: FileWindow, from_lsn: int) -> bytes | None:
        """The records of a group, if all of them count and its checksum covers them, in the file as read again."""
        if (
            group is self._torn
            or group.header.first_lsn < from_lsn
            or (self.end_lsn is not None and group.next_lsn > self.end_lsn)
        ):
            return None
        body = _body(window, group)
        return bytes(body) if crc32c(body) == group.header.body_crc else None

    def proof_beyond(self) -> int | None:
        """The position of a later group that proves that the record at ``next_lsn`` had been forced.

        None if there is none: then what ends the scan is the torn trace of a crash, never provably acknowledged.
        Only block boundaries are looked at. Groups left by an earlier use of the file have lower LSNs or another
        salt, and do not count.
        """
        end = self._window.size - GROUP_HEADER_BYTES
        for start in range(self.stop, end, _LOOKED_AT):
            if _MAGIC_BYTE not in bytes(self._window.at(start, _LOOKED_AT)[::BLOCK]):
                continue  # as nearly everywhere: what is ready for groups to come is zeros
            for position in range(start, min(start + _LOOKED_AT, end), BLOCK):
                header = self._header_at(position)
                if header is not None and header.first_lsn > self.next_lsn <= header.forced_lsn:
                    return position
        return None

    def unproven(self, size: int) -> list[tuple[int, int]]:
        """(position, end) of the groups, the torn one included, that no later force is known to cover.

        ``size`` is that of the file.
        """
        return [(g.position, min(g.end, size)) for g in self.located if g.next_lsn - 1 > self.proven]


def window_of(data: bytes | FileWindow) -> FileWindow:
    """A window over bytes, or the one given."""
    return data if isinstance(data, FileWindow) else FileWindow.of(data)


def _body(window: FileWindow, group: Group) -> memoryview:
    return window.at(group.position + GROUP_HEADER_BYTES, group.header.length)
