"""The removal of old backups, and of what no backup needs."""

from __future__ import annotations

from typing import NamedTuple

from journal.backup import layout
from journal.backup.manifest import read_manifest
from journal.errors import CorruptBackup
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size


class Pruned(NamedTuple):
    """The names of the backups that were removed, how many objects, and their bytes."""

    removed: list[str]
    objects: int
    bytes: int


def prune(backups: IFilesystem, keep: int) -> Pruned:
    """Remove all backups but the newest ``keep`` ones (at least 1), then the objects that no backup has.

    Raises :class:`UnknownBackup` for a directory without backups, :class:`DirectoryLocked` if something else works in
    it, and :class:`CorruptBackup` if the manifest of one that stays cannot be read: then nothing was removed, because
    what it needs is not known.
    """
    if keep < 1:
        raise ValueError("prune keeps one backup at least")
    layout.check_backups(backups)
    lock = backups.lock(layout.LOCK)
    try:
        layout.sweep(backups)
        names = layout.backup_names(backups)
        needed = _needed(backups, names[-keep:])
        gone = names[:-keep]
        for name in gone:
            backups.unlink(layout.manifest_file(name))
        return Pruned(gone, *_remove_unneeded(backups, needed))
    finally:
        lock.release()


def sweep(backups: IFilesystem) -> None:
    """Remove what backups and prunes left that were not finished: scratch files, and objects that no manifest names.

    The caller holds the lock. While a manifest cannot be read, no object is removed: what it needs is not known, and
    that it is damaged is for ``list``, ``verify`` and ``prune`` to tell.
    """
    layout.sweep(backups)
    try:
        needed = _needed(backups, layout.backup_names(backups))
    except CorruptBackup:
        return
    _remove_unneeded(backups, needed)


def _needed(backups: IFilesystem, names: list[str]) -> set[str]:
    """Return the objects that these backups need."""
    needed: set[str] = set()
    for name in names:
        needed |= read_manifest(backups, name).objects().keys()
    return needed


def _remove_unneeded(backups: IFilesystem, needed: set[str]) -> tuple[int, int]:
    """Remove all other objects; return how many there were, and their bytes."""
    # Before any object goes: a power cut must not bring back a backup whose objects are gone.
    backups.force_directory(layout.MANIFESTS)
    count = size = 0
    for digest in layout.stored_objects(backups):
        if digest not in needed:
            path = layout.object_file(digest)
            size += file_size(backups, path)
            backups.unlink(path)
            count += 1
    return count, size
