"""The data directory of a drill is a new one, or a copy of one that no broker has open."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journal.errors import DirectoryLocked
from journal.formats import filenames
from journal.vfs.filesystem import OSFilesystem

SPARE_BYTES = 1 << 30
"""The free space in bytes that a drill needs beside the copy."""


class NoDirectory(Exception):
    """The drill cannot get its directory; nothing was changed. The message says why and what to do."""


def make_folder(path: Path) -> None:
    """Make the folder that a drill writes into, unless it exists; raises :class:`NoDirectory`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(dir=path))
    except OSError as error:
        raise NoDirectory(
            f"the folder {path} cannot be made, or not be written into: {error.strerror}. Nothing was changed. Say "
            "--out with a folder in a place where this user may write"
        ) from error


def check_data_directory(path: Path) -> None:
    """Raise :class:`NoDirectory` unless it is a data directory."""
    if not (path / filenames.JOURNAL_DIRECTORY).is_dir():
        raise NoDirectory(
            f"{path} is not a data directory: it holds no '{filenames.JOURNAL_DIRECTORY}'. Nothing was changed"
        )


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep every broker out of a data directory without writing into it; DirectoryLocked if a broker has it open."""
    try:
        lock = OSFilesystem(path).read_lock(filenames.LOCK)
    except DirectoryLocked as error:
        raise DirectoryLocked(
            f"{error}. A drill needs a directory at rest: stop that broker, or take a snapshot of the file system and "
            "give the drill that"
        ) from None
    try:
        yield
    finally:
        lock.release()


def copy_data(source: Path, target: Path) -> None:
    """Copy a data directory that is not in use; raises NoDirectory if space is missing, DirectoryLocked if it
    is in use.
    """
    check_data_directory(source)
    with held(source):
        needed = sum(file.stat().st_blocks * 512 for file in source.rglob("*") if file.is_file())
        free = shutil.disk_usage(target.parent).free
        if free < needed + SPARE_BYTES:
            raise NoDirectory(
                f"the copy of {source} takes {needed:,} bytes and the drill about {SPARE_BYTES:,} more; {free:,} are "
                f"free in {target.parent}. Nothing was changed. Say --out with a folder on a larger disk"
            )
        try:
            socket = shutil.ignore_patterns(filenames.ADMIN_SOCKET)  # a broker that was killed has left it
            shutil.copytree(source, target, symlinks=True, ignore=socket)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            reason = _first_reason(error)
            raise NoDirectory(f"{source} cannot be copied: {reason}. Nothing was changed in it") from error


def _first_reason(error: OSError) -> str:
    """Return the reason of an error; of an error about several files, as shutil raises it, the first reason."""
    failures = error.args[0] if isinstance(error, shutil.Error) else ()
    return f"{failures[0][0]}: {failures[0][2]}" if failures else str(error)
