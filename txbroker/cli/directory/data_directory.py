"""The data directory that a command reads without a broker: checked, locked, and with advice if its files change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from journal.check import Finding
from journal.errors import DirectoryLocked
from journal.formats import filenames
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.directory.ownership import owner_for_root
from txbroker.cli.exits import Exit, Failure

DIRECTORY = click.argument("directory", type=click.Path(exists=True, file_okay=False))


def data_directory(directory: str) -> OSFilesystem:
    """Return the files of a data directory; fails for another directory. What root makes there is its owner's."""
    filesystem = OSFilesystem(directory, owner=owner_for_root(directory))
    if not any(
        filesystem.exists(name) for name in (filenames.JOURNAL_DIRECTORY, filenames.CHECKPOINT_DIRECTORY)
    ):
        raise Failure(
            f"{directory} is not a data directory: it holds no 'journal'. Nothing was read", Exit.USAGE
        )
    return filesystem


def is_started(directory: str | Path) -> bool:
    """Return whether a start has made a data directory there, also one of another format."""
    return os.path.exists(os.path.join(directory, filenames.VERSION)) or all(
        os.path.exists(os.path.join(directory, name))
        for name in (filenames.LOCK, filenames.JOURNAL_DIRECTORY)
    )


def check_place(directory: str) -> None:
    """Raise ``Failure`` if the directory is in a data directory, or would be, or there is no folder for it."""
    for outer in Path(directory).resolve().parents:
        if is_started(outer):
            raise Failure(
                f"{directory} is in the data directory {outer}: it would be moved and removed with it, and no backup "
                "of that has it. Nothing was done. Name a directory elsewhere",
                Exit.USAGE,
            )
    folder = Path(directory).absolute().parent
    if not folder.is_dir():
        raise Failure(
            f"{directory} cannot be made: {folder} is {'no directory' if folder.exists() else 'missing'}. Nothing was "
            "done. See whether the disk that it should be on is mounted; make the folder, or name another one",
            Exit.USAGE,
        )


_IN_THE_WAY = (
    Exit.CORRUPT,
    "A file lies where a directory belongs, or the other way round: move it away, restore what was there from a copy, "
    "and look again",
)
_ADVICE: dict[type[OSError], tuple[Exit, str]] = {
    PermissionError: (Exit.UNREACHABLE, "Run this as the user that the broker runs as, or as root"),
    IsADirectoryError: _IN_THE_WAY,
    NotADirectoryError: _IN_THE_WAY,
}
"""The advice for errors of the operating system; for all others it is to look at the disk."""


@contextmanager
def held_still(filesystem: OSFilesystem, directory: str) -> Iterator[None]:
    """Make sure that no broker uses the directory, and that none begins meanwhile. Nothing is written.

    The directory is locked for reading, and its lock file if there is one: a copy or a read-only medium needs none.
    """
    try:
        with files_that_stay(directory):
            lock = filesystem.read_lock(filenames.LOCK)
    except DirectoryLocked as error:
        raise Failure(
            f"{error}. Files under a running broker come and go, so what would be found might not be true. Stop it, or "
            "take an atomic snapshot of the file system and look at that; a running broker checks its own files, "
            "'txbroker status' says what its scrubber found",
            Exit.UNREACHABLE,
        ) from error
    try:
        with files_that_stay(directory):
            yield
    finally:
        lock.release()


@contextmanager
def files_that_stay(directory: str) -> Iterator[None]:
    """Explain the error if a file disappears while the directory is read, or cannot be read at all."""
    try:
        yield
    except BrokenPipeError:
        raise
    except FileNotFoundError as error:
        raise Failure(
            f"{error.filename} went away while {directory} was read: is a broker running on it? Nothing was changed. "
            "Stop the broker, or take a copy",
            Exit.UNREACHABLE,
        ) from error
    except OSError as error:
        code, advice = _ADVICE.get(type(error), (Exit.CORRUPT, "Look at the disk (dmesg), and take a copy"))
        what = error.filename or "a file of it"
        raise Failure(
            f"{directory} cannot be read to its end: {what}: {error.strerror}. What there is besides is not known, and "
            f"nothing was changed. {advice}",
            code,
        ) from error


def finding_json(finding: Finding) -> dict[str, object]:
    """Return a finding for programs."""
    return {
        "file": finding.path, "position": finding.position, "damage": not finding.harmless,
        "problem": finding.problem, "affects": finding.affects.facts(),
    }  # fmt: skip
