"""Checkpoint files: the state of all folds and stores at one LSN, so that the journal below need not be replayed.

A file is eight bytes of magic, then sections ``length u32 | crc u32 | body`` with msgpack bodies: the header, runs of a
fold's rows, runs of store states, and an end that counts the sections. It is written under a temporary name, forced,
renamed, and its directory forced; so a file with a checkpoint's name is whole, or was damaged later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Any

import msgspec
from crc32c import crc32c

from journal.constants import MIB
from journal.errors import CorruptJournal, UnknownFormat
from journal.formats import filenames
from journal.formats.store_state import StoreState
from journal.formats.version import magic
from journal.interfaces import IFilesystem
from journal.vfs.file_window import opened
from journal.vfs.filesystem import write_fully

MAGIC = magic(b"TXBCKPT")
_SECTION = Struct(">II")
_ROWS_PER_SECTION = 1000
_encode = msgspec.msgpack.Encoder().encode


class CheckpointHeader(msgspec.Struct, array_like=True, frozen=True):
    """The header of a checkpoint. All records up to ``lsn`` are in it; ``needed_from`` is the lowest LSN still needed.

    ``at`` is journal time at the checkpoint, ``start`` the start that wrote it, ``salt`` that of its journal files.
    """

    lsn: int
    needed_from: int
    start: int
    at: int
    salt: int


class Rows(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A run of a fold's rows."""

    fold: str
    rows: list[Any]


class Stores(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A run of store states."""

    states: list[StoreState]


class End(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The number of sections before it."""

    sections: int


_decode_header = msgspec.msgpack.Decoder(CheckpointHeader).decode
_decode_section = msgspec.msgpack.Decoder(Rows | Stores | End).decode


class Checkpoint(msgspec.Struct):
    """A checkpoint that has been read."""

    header: CheckpointHeader
    folds: dict[str, list[Any]]
    stores: list[StoreState]


def write_checkpoint(
    filesystem: IFilesystem,
    header: CheckpointHeader,
    folds: dict[str, Iterator[Any]],
    stores: list[StoreState],
) -> None:
    """Write a checkpoint durably. Everything that it refers to must be forced before. (Flusher thread.)"""
    path = filenames.checkpoint_file(header.lsn)
    file = filesystem.open(filenames.temporary(path), create=True)
    try:
        file.truncate(0)
        position = 0
        for data in packed_checkpoint(header, folds, stores):
            position += write_fully(file, position, [data])
        file.force()
    finally:
        file.close()
    filesystem.rename(filenames.temporary(path), path)
    filesystem.force_directory(filenames.CHECKPOINT_DIRECTORY)


def packed_checkpoint(
    header: CheckpointHeader, folds: dict[str, Iterator[Any]], stores: list[StoreState]
) -> Iterator[bytes]:
    """Yield the bytes of a checkpoint's file, a section at a time."""
    yield MAGIC
    for section in _sections(header, folds, stores):
        yield _SECTION.pack(len(section), crc32c(section)) + section


def _sections(
    header: CheckpointHeader, folds: dict[str, Iterator[Any]], stores: list[StoreState]
) -> Iterator[bytes]:
    yield _encode(header)
    count = 1
    for name, rows in folds.items():
        for run in _runs(rows):
            yield _encode(Rows(name, run))
            count += 1
    for states in _runs(stores):
        yield _encode(Stores(states))
        count += 1
    yield _encode(End(count))


def _runs(rows: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while run := list(islice(iterator, _ROWS_PER_SECTION)):
        yield run


def read_checkpoint(
    filesystem: IFilesystem, lsn: int, checksum: Callable[[bytes], int] = crc32c
) -> Checkpoint:
    """Read a checkpoint; raises :class:`CorruptJournal` if it is not whole and sound."""
    path = filenames.checkpoint_file(lsn)
    sections = _read_sections(filesystem, path, checksum)
    try:
        header = _decode_header(next(sections))
        checkpoint = Checkpoint(header, {}, [])
        count = 1
        for body in sections:
            section = _decode_section(body)
            if isinstance(section, End):
                if section.sections != count or header.lsn != lsn:
                    raise _damaged(path, 0, f"it says {section.sections} sections at LSN {header.lsn}")
                return checkpoint
            count += 1
            if isinstance(section, Rows):
                checkpoint.folds.setdefault(section.fold, []).extend(section.rows)
            else:
                checkpoint.stores.extend(section.states)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, StopIteration) as error:
        raise _damaged(path, 0, f"a section is not one of a checkpoint: {error}") from error
    raise _damaged(path, 0, "its end is missing")


def _read_sections(filesystem: IFilesystem, path: str, checksum: Callable[[bytes], int]) -> Iterator[bytes]:
    with opened(filesystem, path) as file:
        if (found := file.read(0, len(MAGIC))) != MAGIC:
            raise _of_no_known_form(path, found)
        position, end = len(MAGIC), file.size()
        while position < end:
            lengths = file.read(position, _SECTION.size)
            if len(lengths) < _SECTION.size:
                raise _damaged(path, position, "it ends inside a section")
            length, crc = _SECTION.unpack(lengths)
            if length > max(end - position, MIB):
                raise _damaged(path, position, f"a section says it has {length} bytes")
            body = file.read(position + _SECTION.size, length)
            if len(body) != length or checksum(body) != crc:
                raise _damaged(path, position, "a section fails its checksum")
            yield body
            position += _SECTION.size + length


def _of_no_known_form(path: str, magic: bytes) -> CorruptJournal:
    if magic[:-1] != MAGIC[:-1] or len(magic) < len(MAGIC):
        return _damaged(path, 0, "it does not begin as a checkpoint does")
    what = f"it is of format version {magic[-1]}, which is not known here: another version of this program wrote it"
    return UnknownFormat(f"{path} is damaged at 0: {what}. Nothing was changed", path)


def walk_sections(
    filesystem: IFilesystem, path: str, checksum: Callable[[bytes], int] = crc32c
) -> Iterator[tuple[int, Any]]:
    """Yield (position, header, rows, stores or end) of any checkpoint file, or the :class:`CorruptJournal` in its
    place.

    It continues behind a section that fails its checksum, as long as lengths are possible.
    """
    with opened(filesystem, path) as file:
        position, end = len(MAGIC), file.size()
        if file.read(0, len(MAGIC)) != MAGIC:
            yield 0, _damaged(path, 0, "it does not begin as a checkpoint does")
        while position < end:
            lengths = file.read(position, _SECTION.size)
            length, crc = _SECTION.unpack(lengths) if len(lengths) == _SECTION.size else (0, 0)
            if not 0 < length <= end - position - _SECTION.size:
                yield position, _damaged(path, position, f"a section says it has {length} bytes")
                return
            body = file.read(position + _SECTION.size, length)
            yield position, _section(path, position, body, checksum(body) == crc)
            position += _SECTION.size + length


def _section(path: str, position: int, body: bytes, sound: bool) -> Any:
    if not sound:
        return _damaged(path, position, "a section fails its checksum")
    try:
        return (_decode_header if position == len(MAGIC) else _decode_section)(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _damaged(path, position, f"a section is not one of a checkpoint: {error}")


def _damaged(path: str, position: int, reason: str) -> CorruptJournal:
    return CorruptJournal(f"{path} is damaged at {position}: {reason}. Nothing was changed", path, position)
