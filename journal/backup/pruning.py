"""The removal of old backups, and of what no backup needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from journal.backup import layout
from journal.backup.manifest import Manifest, read_manifest
from journal.errors import CorruptBackup
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size


class Pruned(NamedTuple):
    """What a prune did: the names of backups that it removed, how many objects, and their bytes.

    ``data`` has the identity of the data of each backup that was there and could be read. ``damaged`` names, with the
    path of an object, the backups that were kept, but not counted, because of it.
    """

    removed: list[str]
    objects: int
    bytes: int
    data: dict[str, str]
    damaged: dict[str, str]


def prune(backups: IFilesystem, keep: int) -> Pruned:
    """Remove all backups but the newest ``keep`` ones (at least 1) of each data directory, then the objects that no
    backup has.

    Backups of which an object is missing or has another length are not counted, and go only if they are older than
    those. Raises :class:`UnknownBackup` for a directory without backups, :class:`DirectoryLocked` if something else
    works in it, and :class:`CorruptBackup` if the manifest of one that may have to stay cannot be read: then nothing
    was removed, because what it needs is not known.
    """
    if keep < 1:
        raise ValueError("prune keeps one backup at least")
    layout.check_backups(backups)
    lock = layout.lock(backups)
    try:
        layout.sweep(backups)
        choice = _Choice(backups, keep)
        gone = [name for name in layout.backup_names(backups) if name not in choice.kept]
        for name in gone:
            backups.unlink(layout.manifest_file(name))
        count, size = _remove_unneeded(backups, _needed(choice.kept.values()))
        return Pruned(gone, count, size, choice.data, choice.damaged)
    finally:
        lock.release()


class _Choice:
    """The backups that a prune keeps; they are looked at from the newest to the oldest."""

    def __init__(self, backups: IFilesystem, keep: int) -> None:
        self._backups = backups
        self._lengths: dict[str, int] = {}
        self._sound: dict[str, int] = {}
        """How many sound backups there are of the data of each identity, so far."""
        self.kept: dict[str, Manifest] = {}
        self.data: dict[str, str] = {}
        self.damaged: dict[str, str] = {}
        unreadable: list[tuple[dict[str, int], CorruptBackup]] = []
        for name in reversed(layout.backup_names(backups)):
            try:
                manifest = read_manifest(backups, name)
            except CorruptBackup as error:
                unreadable.append((dict(self._sound), error))
                continue
            self.data[name] = manifest.identity
            if self._sound.get(manifest.identity, 0) < keep:
                self._keep(manifest)
        for newer, unknown in unreadable:
            # Of whose data it was is not known: it may go if it is too old for each of them.
            if not self._sound or any(newer.get(identity, 0) < keep for identity in self._sound):
                raise unknown

    def _keep(self, manifest: Manifest) -> None:
        self.kept[manifest.name] = manifest
        wrong = next((d for d, length in manifest.objects().items() if self._length(d) != length), None)
        if wrong is None:
            self._sound[manifest.identity] = self._sound.get(manifest.identity, 0) + 1
        else:
            self._sound.setdefault(manifest.identity, 0)
            self.damaged[manifest.name] = layout.object_file(wrong)

    def _length(self, digest: str) -> int:
        """Return the length of an object, -1 for one that is missing or is no file."""
        if digest not in self._lengths:
            try:
                self._lengths[digest] = file_size(self._backups, layout.object_file(digest))
            except PermissionError:
                raise
            except OSError:
                self._lengths[digest] = -1
        return self._lengths[digest]


def sweep(backups: IFilesystem) -> None:
    """Remove what backups and prunes left that were not finished: scratch files, and objects that no manifest names.

    The caller holds the lock. While a manifest cannot be read, no object is removed: what it needs is not known, and
    that it is damaged is for ``list``, ``verify`` and ``prune`` to tell.
    """
    layout.sweep(backups)
    try:
        manifests = [read_manifest(backups, name) for name in layout.backup_names(backups)]
    except CorruptBackup:
        return
    _remove_unneeded(backups, _needed(manifests))


def _needed(manifests: Iterable[Manifest]) -> set[str]:
    """Return the objects that these backups need."""
    return {digest for manifest in manifests for digest in manifest.objects()}


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
