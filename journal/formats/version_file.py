"""The file ``txbroker.version`` of a data directory: its format, and which version of this program started there last.

It is text for people, and a start that does not know the format says by it what wrote the directory. Nothing else
depends on it: one that is missing or damaged is written anew by the next start.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from crc32c import crc32c

from journal.formats import filenames
from journal.formats.version import FORMAT, PROGRAM
from journal.interfaces import IFilesystem
from journal.vfs.file_window import read_some
from journal.vfs.filesystem import write_fully

MAX_BYTES: Final = 256
"""Most bytes of the file: they lie in one sector, so no crash leaves a mixture."""

_text = re.compile(rb"(format ([1-9][0-9]{0,5})\ntxbroker ([0-9A-Za-z.+!-]{1,64})\n)crc32c ([0-9a-f]{8})\n")


class Written(NamedTuple):
    """What wrote a directory: the number of the format, and the version of the program that started there last."""

    format: int
    program: str


OURS: Final = Written(FORMAT, PROGRAM)
"""What this program writes."""


DAMAGED: Final = f"{filenames.VERSION} is damaged: which version started here last is not known"
"""The note about a file that is there and says nothing."""


def pack_version(written: Written) -> bytes:
    """Return the bytes of the file."""
    text = b"format %d\ntxbroker %s\n" % (written.format, written.program.encode())
    return text + b"crc32c %08x\n" % crc32c(text)


def unpack_version(data: bytes) -> Written | None:
    """Read the file's bytes; None if they are damaged."""
    match = _text.fullmatch(data)
    if match is None or crc32c(match[1]) != int(match[4], 16):
        return None
    return Written(int(match[2]), match[3].decode())


def read_version(filesystem: IFilesystem) -> Written | None:
    """Return what the directory says; None if the file is missing, damaged or cannot be read."""
    try:
        if not filesystem.exists(filenames.VERSION):
            return None
        return unpack_version(bytes(read_some(filesystem, filenames.VERSION, 0, MAX_BYTES)))
    except OSError:
        return None


def is_damaged(filesystem: IFilesystem) -> bool:
    """Return whether the file is there and says nothing. One that is missing is nothing to tell of."""
    return filesystem.exists(filenames.VERSION) and read_version(filesystem) is None


def write_version(filesystem: IFilesystem) -> None:
    """Have the directory say what is written from here on, durably; nothing is written if it says so already."""
    if read_version(filesystem) == OURS:
        return
    packed = pack_version(OURS)
    file = filesystem.open(filenames.VERSION, create=True)
    try:
        write_fully(file, 0, [packed])
        file.truncate(len(packed))
        file.force()
    finally:
        file.close()
    filesystem.force_directory("")
