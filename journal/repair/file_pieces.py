"""A repair describes new files before anything is written: as runs of bytes that lie in other files or are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from journal.constants import MIB
from journal.formats.frame import stamp
from journal.interfaces import IFile, IFilesystem
from journal.vfs.file_window import read_some
from journal.vfs.filesystem import write_fully


class Slice(NamedTuple):
    """Bytes of an existing file."""

    path: str
    position: int
    length: int


class Stamped(NamedTuple):
    """A run of unstamped frames in an existing file, to be stamped with offsets from ``base`` on and the append time,
    0 if that is not known any more.
    """

    path: str
    position: int
    length: int
    base: int
    appended: int


Piece = bytes | Slice | Stamped


class Change(NamedTuple):
    """A file that is replaced by ``pieces``, or removed if they are None. The old file is kept as evidence.

    With ``moved_from`` the file at that path replaces it, and gets its name.
    """

    path: str
    pieces: list[Piece] | None
    why: str
    moved_from: str = ""

    @property
    def size(self) -> int:
        """Return how many bytes it takes to write."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in self.pieces or ())


def write_pieces(filesystem: IFilesystem, file: IFile, pieces: list[Piece]) -> None:
    """Write the pieces one after the other, and force the file."""
    position = 0
    for piece in pieces:
        for data in bytes_of(filesystem, piece):
            position += write_fully(file, position, [data])
    file.truncate(position)
    file.force()


def bytes_of(filesystem: IFilesystem, piece: Piece) -> Iterator[bytes]:
    """Yield the bytes of a piece, in runs of at most a megabyte where the piece is a slice."""
    if isinstance(piece, bytes):
        yield piece
    elif isinstance(piece, Stamped):
        run = bytearray(read_some(filesystem, piece.path, piece.position, piece.length))
        stamp(memoryview(run), piece.base, piece.appended)
        yield bytes(run)
    else:
        for position in range(piece.position, piece.position + piece.length, MIB):
            end = min(position + MIB, piece.position + piece.length)
            yield read_some(filesystem, piece.path, position, end - position)
