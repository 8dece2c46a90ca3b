"""The identity of a database file, in words that a copy of the file does not share, as far as its file system
allows.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_STATX_MASK: Final = struct.Struct("=I")
_STATX_BIRTH: Final = struct.Struct("=qI")
_BIRTH_OFFSET: Final = 80

_DEVICE_NUMBERS: Final = 1 << 32
"""File systems without an identity of their own (XFS, F2FS, FAT) say the number of their device, which is below this
and may be another one after the next start of the machine. It says nothing, nor does 0."""


def describe(path: str) -> str:
    """Names and values of what tells the file at ``path`` from a copy: its inode, and as far as they exist the identity
    of its file system and its birth time. The number of its device is not in it.
    """
    found = {"inode": str(os.stat(path).st_ino)}
    volume = os.statvfs(path).f_fsid if hasattr(os, "statvfs") else 0
    if volume >= _DEVICE_NUMBERS:
        found["fsid"] = f"{volume:016x}"
    if born := _birth_time(path):
        found["born"] = born
    return " ".join(f"{name} {value}" for name, value in found.items())


def contradicts(made: str, here: str) -> bool:
    """Whether two descriptions are of two files: something that both of them tell differs."""
    first, second = _parts(made), _parts(here)
    return any(first[name] != second[name] for name in first.keys() & second.keys())


def _parts(described: str) -> dict[str, str]:
    words = described.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _birth_time(path: str) -> str:
    """Seconds since 1970 with nine decimals; "" where it is not told. Python's ``os.stat`` leaves it out on Linux."""
    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError, TypeError):  # no C library to be asked, or one without it
        return ""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return ""
    (told,) = _STATX_MASK.unpack_from(answer)
    seconds, nanoseconds = _STATX_BIRTH.unpack_from(answer, _BIRTH_OFFSET)
    if not told & _STATX_BTIME or not (seconds or nanoseconds):
        return ""
    return f"{seconds}.{nanoseconds:09d}"
