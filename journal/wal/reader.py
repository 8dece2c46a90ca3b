"""The one reader of the journal's files: it yields their headers, groups and records, and where and why they end.

A start stops at damage, a verification reports it, a repair collects the sound parts around it, a scrub reads in
slices, a dump prints everything. They differ in what they do with these events, and in the checksum's implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from journal.constants import BLOCK
from journal.errors import CorruptJournal
from journal.formats import filenames
from journal.formats.checksum import Checksum
from journal.interfaces import IFilesystem
from journal.records import record
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    FileHeader,
    GroupHeader,
    blocks,
    group_fields,
    header_copies,
    unpack_file_header,
    unpack_group_header,
)
from journal.records.record import AnyRecord
from journal.vfs.file_window import FileWindow, opened

_MAGIC_BYTE = GROUP_MAGIC >> 24
_LOOKED_AT = 256 * BLOCK
_NO_END = 1 << 64


class FileStart(NamedTuple):
    """The beginning of a journal file; ``damaged`` are the copies of its header that are not used, ``size`` is
    in bytes.
    """

    header: FileHeader
    damaged: tuple[int, ...]
    size: int


class Group(NamedTuple):
    """A group: the position and contents of its header, and how many of its records, from the first on, are sound.

    ``beyond`` says that it was found behind damage, where no start would look for it.
    """

    position: int
    header: GroupHeader
    sound: int
    beyond: bool = False

    @property
    def next_lsn(self) -> int:
        """The LSN after the last record that counts."""
        return self.header.first_lsn + self.sound

    @property
    def end(self) -> int:
        """The block boundary after it."""
        return self.position + blocks(GROUP_HEADER_BYTES + self.header.length)

    @property
    def is_whole(self) -> bool:
        """Whether all of its records are sound."""
        return self.sound == self.header.records


class JournalEntry(NamedTuple):
    """A record of the journal and its position; ``data`` are its frames, ``start`` is the start that wrote it.

    ``beyond`` says that it was found behind damage, where no start would look for it.
    """

    path: str
    position: int
    lsn: int
    record: AnyRecord
    data: memoryview
    beyond: bool = False
    length: int = 0
    start: int = 0


class Damage(NamedTuple):
    """A record in a group with a sound header that is not sound, or of an unknown kind. Later ones there are
    lost, too.
    """

    position: int
    lsn: int
    last_lsn: int
    problem: str


class FileEnd(NamedTuple):
    """Where and why the records of a file end: ``next_lsn`` is the LSN after the last one, ``problem`` is empty if the
    next file begins there.

    ``proof`` is what in the journal's files shows that there had been more, empty if nothing does: then the end is at
    most the trace of a crash. ``proven`` is the highest LSN known to have been forced. ``is_torn``: the header of a
    group there is sound, its body is not. ``header_is_damaged``: a group began there whose header is not what was
    written; no crash leaves such a header, because it lies in one sector.
    """

    position: int
    next_lsn: int
    proven: int
    problem: str
    proof: str
    is_torn: bool
    header_is_damaged: bool


def journal_lsns(filesystem: IFilesystem) -> list[int]:
    """Return the first LSNs of the journal files, oldest first, by their names."""
    if not filesystem.exists(filenames.JOURNAL_DIRECTORY):
        return []
    names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    return sorted(lsn for name in names if (lsn := filenames.parse_journal_file(name)) is not None)


def journal_files(filesystem: IFilesystem) -> list[str]:
    """Return the paths of the journal files, oldest first."""
    return [filenames.journal_file(lsn) for lsn in journal_lsns(filesystem)]


def file_start(filesystem: IFilesystem, path: str, checksum: Checksum = crc32c) -> FileStart:
    """Read the header of a journal file; raises :class:`CorruptJournal` if no copy of it is sound."""
    with opened(filesystem, path) as file:
        data, size = file.read(0, FIRST_GROUP), file.size()
    header = unpack_file_header(data, path, checksum)
    copies = enumerate(header_copies(data, checksum))
    return FileStart(header, tuple(number for number, copy in copies if copy != header), size)


class FileReader:
    """Reads one file. ``end_lsn`` is where it ends according to the next file, None for the newest."""

    def __init__(
        self,
        bytes_of: FileWindow,
        path: str,
        header: FileHeader,
        end_lsn: int | None = None,
        checksum: Checksum = crc32c,
    ) -> None:
        self.path = path
        self.header = header
        self._bytes_of = bytes_of
        self._end_lsn = end_lsn
        self._checksum = checksum

    # -- events ------------------------------------------------------------------------------------

    def events(
        self, from_lsn: int = 0, beyond: bool = False
    ) -> Iterator[Group | JournalEntry | Damage | FileEnd]:
        """Yield the events of :meth:`groups`, and after each group its records from ``from_lsn`` on, and their
        damage.
        """
        for each in self.groups(beyond):
            yield each
            if isinstance(each, Group) and each.beyond:
                yield from self.told(each._replace(sound=each.header.records), from_lsn)
            elif isinstance(each, Group) and each.next_lsn > from_lsn:
                yield from self.told(each, from_lsn)

    def groups(
        self, beyond: bool = False, position: int = FIRST_GROUP, lsn: int = 0
    ) -> Iterator[Group | FileEnd]:
        """Yield the groups from that of ``lsn`` (the first) at ``position`` on, a torn one with its sound records, and
        the end. With ``beyond`` the groups behind the end follow.
        """
        lsn, end_lsn = lsn or self.header.first_lsn, self._end_lsn or _NO_END
        proven, problem, is_torn, is_damaged = self.header.previous_end - 1, "", False, False
        while lsn < end_lsn:
            header = self.group_header(position)
            if header is None or header.first_lsn != lsn:
                problem = f"no sound group of LSN {lsn} at {position}"
                is_damaged = header is None and self._resembles_group(position, lsn)
                break
            if header.forced_lsn > proven:
                proven = header.forced_lsn
            group = Group(position, header, min(header.records, end_lsn - lsn))
            if is_torn := not self._is_sound(group):
                count, problem = self._sound_records(group)
                if count:
                    yield group._replace(sound=min(count, group.sound))
                lsn = min(lsn + count, end_lsn)
                break
            yield group
            lsn, position = group.next_lsn, group.end
        yield FileEnd(position, lsn, proven, problem, self._proof(position, lsn), is_torn, is_damaged)
        if beyond:
            yield from self._beyond(position + BLOCK, lsn)

    def records(self, group: Group, from_lsn: int = 0) -> Iterator[JournalEntry]:
        """Yield the sound records of a group, from ``from_lsn`` on.

        Raises :class:`CorruptJournal` for one that is not sound, or of a kind that is not known here.
        """
        start, position = group.position + GROUP_HEADER_BYTES, 0
        body, salt = self._body(group), self.header.salt
        for lsn in range(group.header.first_lsn, group.next_lsn):
            seed = record.seed(salt, lsn)
            found, data, length = record.unpack(body, position, seed, self.path, start, self._checksum)
            if lsn >= from_lsn:
                yield JournalEntry(
                    self.path, start + position, lsn, found, data, group.beyond, length, self.header.start
                )
            position += length

    def told(self, group: Group, from_lsn: int = 0) -> Iterator[JournalEntry | Damage]:
        """Yield the same records, and the damage at which they end instead of the error."""
        try:
            yield from self.records(group, from_lsn)
        except CorruptJournal as error:
            lsn = group.header.first_lsn + self._sound_records(group)[0]
            yield Damage(error.position, lsn, group.next_lsn - 1, self._reason(error))

    def body(self, group: Group) -> bytes | None:
        """Return all records of a group in one piece, if all are sound and its checksum covers them; they are
        read again.
        """
        data = self._body(group)
        return bytes(data) if group.is_whole and self._checksum(data) == group.header.body_crc else None

    def group_header(self, position: int) -> GroupHeader | None:
        """Return the header of a group of this start at a block boundary; None if there is no sound one."""
        found = self._bytes_of.at(position, GROUP_HEADER_BYTES)
        return unpack_group_header(found, 0, self.header.salt, self._checksum)

    # -- bytes -------------------------------------------------------------------------------------

    def _body(self, group: Group) -> memoryview:
        return self._bytes_of.at(group.position + GROUP_HEADER_BYTES, group.header.length)

    def _is_sound(self, group: Group) -> bool:
        body = self._body(group)
        return len(body) == group.header.length and self._checksum(body) == group.header.body_crc

    def _sound_records(self, group: Group) -> tuple[int, str]:
        """Return how many records of a group are sound, from the first on, and the problem behind them."""
        count = 0
        try:
            for _ in self.records(group._replace(sound=group.header.records)):
                count += 1
        except CorruptJournal as error:
            return count, self._reason(error)
        # Each record is sound but the body's checksum is not: the bytes after the records differ.
        return count, f"the group at {group.position} fails its checksum"

    def _reason(self, error: CorruptJournal) -> str:
        return str(error).removeprefix(f"{self.path}: ")

    def _resembles_group(self, position: int, lsn: int) -> bool:
        """Return whether two of the three fields by which the group of ``lsn`` is recognised are its own.

        Groups left by an earlier use of the file have only the magic: their forced LSN is below this file.
        """
        found = group_fields(self._bytes_of.at(position, GROUP_HEADER_BYTES))
        if found is None:
            return False
        in_file = self.header.previous_end - 1 <= found.forced_lsn < lsn
        return bool(sum((found.magic == GROUP_MAGIC, found.first_lsn == lsn, in_file)) >= 2)

    # -- what lies behind --------------------------------------------------------------------------

    def _proof(self, position: int, lsn: int) -> str:
        """Return the proof that the missing record of ``lsn`` had been forced; "" if there is none."""
        if self._end_lsn is not None:
            return (
                f"the next file says that it goes on to LSN {self._end_lsn - 1}"
                if lsn < self._end_lsn
                else ""
            )
        found = self._group_that_proves(position, lsn)
        return f"a later group at {found} proves that it had been forced" if found is not None else ""

    def _group_that_proves(self, position: int, lsn: int) -> int | None:
        """Return the position of a later group which says that the record of ``lsn`` had been forced; None without one.

        It looks only at block boundaries. Groups left by an earlier use of the file have lower LSNs or another salt,
        and do not count.
        """
        end = self._bytes_of.size - GROUP_HEADER_BYTES
        for start in range(position, end, _LOOKED_AT):
            if _MAGIC_BYTE not in bytes(self._bytes_of.at(start, _LOOKED_AT)[::BLOCK]):
                continue  # as at nearly all boundaries: space for later groups is zeros
            for at in range(start, min(start + _LOOKED_AT, end), BLOCK):
                header = self.group_header(at)
                if header is not None and header.first_lsn > lsn <= header.forced_lsn:
                    return at
        return None

    def _beyond(self, position: int, lsn: int) -> Iterator[Group]:
        """Yield the groups of this start behind the end, oldest first."""
        while position + GROUP_HEADER_BYTES <= self._bytes_of.size:
            header = self.group_header(position)
            if header is None or header.first_lsn < lsn:
                position += BLOCK
                continue
            group = Group(position, header, header.records, beyond=True)
            yield group._replace(sound=self._sound_records(group)[0])
            position, lsn = group.end, header.first_lsn + header.records
