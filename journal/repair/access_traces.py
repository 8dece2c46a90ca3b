"""Traces of users, rules and the switch: whether a directory ever had any, by all that can still be read of it.

A repair that may have lost a change of them has to know. Where there is no trace nobody has ever had to log in, and
the repaired directory goes on as before; where there is one it waits for a person to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.msgpack import encode

from journal.folds.access import AccessFold
from journal.formats.checkpoint import Checkpoint, Rows
from journal.interfaces import IFilesystem
from journal.records.record_header import HEADER_BYTES
from journal.repair.journal_runs import SoundFile
from journal.vfs.file_window import file_size, read_some, window
from journal.wal.reader import Damage, FileReader, Group, JournalEntry

_SECTION_OF_ACCESS: Final = encode(Rows(AccessFold.name, []))[:-1]
_KINDS: Final[tuple[Any, ...]] = AccessFold.handles
_HEADS: Final = frozenset(
    bytes([0x90 | 1 + len(kind.__struct_fields__), kind.__struct_config__.tag]) for kind in _KINDS
)
"""The first bytes of a record's head in msgpack: an array of its length, and its kind."""


def has_trace(
    filesystem: IFilesystem, files: Iterable[SoundFile], sound: Iterable[Checkpoint], damaged: Iterable[str]
) -> bool:
    """Return whether the journal files, sound checkpoints or files of ``damaged`` ones have anything about access."""
    return (
        any(checkpoint.folds.get(AccessFold.name) for checkpoint in sound)
        or any(has_row_of_access(filesystem, path) for path in damaged)
        or any(_is_of_access(filesystem, file, each) for file in files for each in _records(filesystem, file))
    )


def has_row_of_access(filesystem: IFilesystem, path: str) -> bool:
    """Return whether a checkpoint's file, damaged or not, has the beginning of a section of users and rules."""
    return _SECTION_OF_ACCESS in read_some(filesystem, path, 0, file_size(filesystem, path))


def _records(filesystem: IFilesystem, file: SoundFile) -> Iterator[JournalEntry | Damage]:
    """Yield all records of a file, and what is damaged, behind damage too."""
    with window(filesystem, file.path) as bytes_of:
        reader = FileReader(bytes_of, file.path, file.header)
        for each in reader.groups(beyond=True):
            if isinstance(each, Group):
                yield from reader.told(each._replace(sound=each.header.records))
            elif each.is_torn and (header := reader.group_header(each.position)) is not None:
                yield from reader.told(Group(each.position, header, header.records))


def _is_of_access(filesystem: IFilesystem, file: SoundFile, each: JournalEntry | Damage) -> bool:
    """Return whether a record is about access; of a damaged one its kind says so, if that can be read."""
    if isinstance(each, JournalEntry):
        return isinstance(each.record, AccessFold.handles)
    return read_some(filesystem, file.path, each.position + HEADER_BYTES, 2) in _HEADS
