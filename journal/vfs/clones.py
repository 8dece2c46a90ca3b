"""Copies of files that share blocks with the original until either is written to, and files that are only read."""

from __future__ import annotations

import os

from journal.interfaces import IFile
from journal.vfs.linux import fcntl

_FICLONE = 0x40049409
"""``ioctl_ficlone(2)``: all of one file into another, empty one."""
_READ_ONLY = 0o400


def clone(source: IFile, target: IFile) -> bool:
    """Make ``target``, which is empty, a copy of ``source`` as it is now that shares its blocks; return False if that
    cannot be.

    File systems such as XFS and Btrfs can, within themselves. The two stay files of their own, whatever is written.
    """
    if source.descriptor is None or target.descriptor is None:
        return False
    try:
        fcntl.ioctl(target.descriptor, _FICLONE, source.descriptor)
    except OSError:
        # Whatever the reason, copying works or fails with an error of its own.
        return False
    return True


def make_read_only(file: IFile) -> None:
    """Let nobody write to the file any more who opens it after this, as far as its file system has modes."""
    if file.descriptor is not None:
        os.fchmod(file.descriptor, _READ_ONLY)
