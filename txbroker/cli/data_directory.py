"""The data directory that a command reads without a broker: found, held still, and explained if it does not stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from journal import filenames
from journal.errors import DirectoryLocked
from journal.filesystem import OSFilesystem
from journal.inspect import Finding
from txbroker.cli.exits import Exit, Failure

DIRECTORY = click.argument("directory", type=click.Path(exists=True, file_okay=False))


def data_directory(directory: str) -> OSFilesystem:
    """The files of a data directory; fails for a directory that is none."""
    filesystem = OSFilesystem(directory)
    if not any(
        filesystem.exists(name) for name in (filenames.JOURNAL_DIRECTORY, filenames.CHECKPOINT_DIRECTORY)
    ):
        raise Failure(
            f"{directory} is not a data directory: it holds no 'journal'. Nothing was read", Exit.USAGE
        )
    return filesystem


@contextmanager
def held_still(filesystem: OSFilesystem, directory: str) -> Iterator[None]:
    """No broker is at work in the directory, and none begins meanwhile. Nothing is written for that.

    A copy or a read-only medium needs no lock file; where there is one it is locked for reading.
    """
    try:
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
        if lock is not None:
            lock.release()


@contextmanager
def files_that_stay(directory: str) -> Iterator[None]:
    """Say what it means when a file goes away under a walk."""
    try:
        yield
    except FileNotFoundError as error:
        raise Failure(
            f"{error.filename} went away while {directory} was read: is a broker running on it? Nothing was changed. "
            "Stop the broker, or take a copy",
            Exit.UNREACHABLE,
        ) from error


def finding_json(finding: Finding) -> dict[str, object]:
    """A finding for programs."""
    return {
        "file": finding.path, "position": finding.position, "damage": not finding.harmless,
        "problem": finding.problem, "affects": finding.affects.facts(),
    }  # fmt: skip
