"""All names in a directory of backups, and what a new one begins with.

::

    lock                                  held while something writes in the directory, or reads a backup
    objects/<2 digits>/<64 digits>        read-only contents of files, named by their SHA-256 in hexadecimal
    backups/<number>-<when>.backup        what a backup consists of: a manifest
    unfinished/<number>, manifest         what is being written

Numbers of backups count up, whatever the clock says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from journal.errors import DirectoryLocked, ForeignDirectory, UnknownBackup
from journal.interfaces import IFilesystem

LOCK = "lock"
OBJECTS = "objects"
MANIFESTS = "backups"
SCRATCH = "unfinished"
SCRATCH_MANIFEST = "manifest"
PRIVATE = 0o700
"""The mode of a directory of backups: what is in it is as secret as the data."""
DIRECTORIES = (OBJECTS, MANIFESTS, SCRATCH)
NAME_DIGITS = 64
IN_ROOT = frozenset((LOCK, "lost+found", *DIRECTORIES))
"""The names that may lie in a directory of backups."""
_object = re.compile(f"[0-9a-f]{{{NAME_DIGITS}}}")
_folder = re.compile("[0-9a-f]{2}")
_name = re.compile(r"([0-9]{6,})-[0-9]{8}T[0-9]{6}Z")
_scratch = re.compile(f"[0-9]{{1,9}}|{SCRATCH_MANIFEST}")
_ENDING = ".backup"


def object_folder(digest: str) -> str:
    """Return the directory of an object."""
    return f"{OBJECTS}/{digest[:2]}"


def object_file(digest: str) -> str:
    """Return the path of the object whose content has that SHA-256."""
    return f"{object_folder(digest)}/{digest}"


def is_digest(text: str) -> bool:
    """Return whether a text can be the name of an object."""
    return _object.fullmatch(text) is not None


def backup_name(number: int, when: str) -> str:
    """Return the name of a backup; ``when`` is like ``20260101T120000Z``."""
    return f"{number:06d}-{when}"


def number_of_backup(name: str) -> int:
    """Return the number in the name of a backup. Raises :class:`UnknownBackup` for what is no such name."""
    if (found := _name.fullmatch(name)) is None:
        raise UnknownBackup(
            f"{name[:80]!r} is not the name of a backup, as '000012-20260101T020000Z' is; nothing was done. "
            "'txbroker backup list' has them"
        )
    return int(found[1])


def manifest_file(name: str) -> str:
    """Return the path of a backup's manifest."""
    return f"{MANIFESTS}/{name}{_ENDING}"


def backup_names(filesystem: IFilesystem) -> list[str]:
    """Return the names of all backups, oldest first."""
    names = [
        name.removesuffix(_ENDING) for name in filesystem.list_directory(MANIFESTS) if name.endswith(_ENDING)
    ]
    return sorted(filter(_name.fullmatch, names), key=number_of_backup)


def stored_objects(filesystem: IFilesystem) -> list[str]:
    """Return the names of all objects that are stored."""
    folders = [name for name in filesystem.list_directory(OBJECTS) if _folder.fullmatch(name)]
    return [
        name
        for folder in folders
        for name in filesystem.list_directory(f"{OBJECTS}/{folder}")
        if is_digest(name)
    ]


def lock(filesystem: IFilesystem) -> Any:
    """Take the lock of what writes in a directory of backups. Raises :class:`DirectoryLocked`."""
    return _taken(filesystem.lock)


def read_lock(filesystem: Any) -> Any:
    """Keep a directory of backups, which is one of the operating system, from being written to. Raises
    :class:`DirectoryLocked`.
    """
    return _taken(filesystem.read_lock)


def _taken(take: Callable[[str], Any]) -> Any:
    try:
        return take(LOCK)
    except DirectoryLocked as error:
        busy = DirectoryLocked(
            f"process {error.holder or 'unknown'} is at work in the directory of backups: it makes or verifies a "
            "backup, restores one, or prunes. Nothing was done. Wait until it has ended, or end it: the next "
            "'txbroker backup create' or 'prune' removes what it leaves"
        )
        busy.holder = error.holder
        raise busy from error


def has_backups(filesystem: IFilesystem) -> bool:
    """Return whether this is a directory of backups; it may be missing."""
    return filesystem.exists("") and all(map(filesystem.exists, (OBJECTS, MANIFESTS)))


def check_backups(filesystem: IFilesystem) -> None:
    """Raise :class:`UnknownBackup` if this is not a directory of backups. Writes nothing."""
    if not has_backups(filesystem):
        raise UnknownBackup(
            "the directory holds no backups; nothing was done. 'txbroker backup create' makes the first one"
        )


def prepare(filesystem: IFilesystem) -> None:
    """Make the directories that a directory of backups consists of, durably; what is of something else is left alone.

    Raises :class:`ForeignDirectory` where other files are.
    """
    filesystem.make_directory("")
    foreign = [name for name in filesystem.list_directory("") if name not in IN_ROOT]
    if foreign:
        raise ForeignDirectory(
            f"the directory holds {foreign[0]!r}, and so is not one of backups alone; nothing was written. Name an "
            "empty directory, one that does not exist yet, or one in which backups are"
        )
    for name in DIRECTORIES:
        filesystem.make_directory(name)
    filesystem.force_directory("")


def sweep(filesystem: IFilesystem) -> None:
    """Remove what a backup left that was not finished. The caller holds the lock.

    Other files are left alone, as where a link to another directory stands in the place of this one.
    """
    for name in filesystem.list_directory(SCRATCH):
        if _scratch.fullmatch(name):
            filesystem.unlink(f"{SCRATCH}/{name}")
