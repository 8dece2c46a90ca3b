"""New files as a repair describes them before anything is written: runs of bytes that lie elsewhere, or are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from journal.constants import MIB
from journal.formats.frame import stamp
from journal.interfaces import IFile, IFilesystem
from journal.vfs.file_window import read_some
from journal.vfs.filesystem import write_fully


class Slice(NamedTuple):
    """Bytes of a file that is there."""

    path: str
    position: int
    length: int


class Stamped(NamedTuple):
    """A run of unstamped frames in a file that is there, stamped with offsets from ``base`` on."""

    path: str
    position: int
    length: int
    base: int


Piece = bytes | Slice | Stamped


class Change(NamedTuple):
    """A file that is replaced by ``pieces``, or goes if they are None. What was there is kept as evidence.

    ``moved_from``: it is replaced by the file that lies there, which gets its name.
    """

    path: str
    pieces: list[Piece] | None
    why: str
    moved_from: str = ""

    @property
    def size(self) -> int:
        """How many bytes it takes to write."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in self.pieces or ())


def write_pieces(filesystem: IFilesystem, file: IFile, pieces: list[Piece]) -> None:
    """Write them one after the other, and force the file."""
    position = 0
    for piece in pieces:
        for data in bytes_of(filesystem, piece):
            position += write_fully(file, position, [data])
    file.truncate(position)
    file.force()


def bytes_of(filesystem: IFilesystem, piece: Piece) -> Iterator[bytes]:
    """What a piece stands for, in runs of at most a megabyte where it is a slice."""
    if isinstance(piece, bytes):
        yield piece
    elif isinstance(piece, Stamped):
        run = bytearray(read_some(filesystem, piece.path, piece.position, piece.length))
        stamp(memoryview(run), piece.base)
        yield bytes(run)
    else:
        for position in range(piece.position, piece.position + piece.length, MIB):
            end = min(position + MIB, piece.position + piece.length)
            yield read_some(filesystem, piece.path, position, end - position)
