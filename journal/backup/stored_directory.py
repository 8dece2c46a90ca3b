"""A backup seen as the data directory that it is of, to be read alone: for verification, without a copy."""

from __future__ import annotations

import errno
from typing import Any

from journal import check
from journal.backup import layout
from journal.backup.manifest import Manifest, StoredFile
from journal.check import Level
from journal.errors import CorruptBackup
from journal.formats import filenames
from journal.interfaces import IFile, IFilesystem


class _StoredFile:
    """A file of a backup: an object, and zeros behind it."""

    descriptor = None

    def __init__(self, object_file: IFile, stored: StoredFile) -> None:
        self.path = stored.path
        self._file = object_file
        self._stored = stored

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only where the file ends."""
        stored = self._stored
        length = max(0, min(length, stored.size - position))
        data = self._file.read(position, max(0, min(length, stored.length - position)))
        return data + bytes(length - len(data)) if position + len(data) >= stored.length else data

    def read_now(self, position: int, length: int) -> bytes | None:
        """Read as :meth:`read` does."""
        return self.read(position, length)

    def forget_cached(self, position: int, length: int) -> None:
        """Let the next read of these bytes come from the disk."""
        self._file.forget_cached(position, length)

    def size(self) -> int:
        """The file's length in bytes."""
        return self._stored.size

    def close(self) -> None:
        """Close the object."""
        self._file.close()


class StoredDirectory:
    """What a start would find if the backup were restored. Only what reads is there."""

    def __init__(self, backups: IFilesystem, manifest: Manifest) -> None:
        self._backups = backups
        self._files = {file.path: file for file in manifest.files}
        self._names: dict[str, set[str]] = {name: set() for name in ("", *filenames.DIRECTORIES)}
        for path in [*self._files, *filenames.DIRECTORIES]:
            parts = path.split("/")
            for depth in range(len(parts)):
                self._names.setdefault("/".join(parts[:depth]), set()).add(parts[depth])

    def open(self, path: str, create: bool = False, writable: bool = True) -> Any:
        """Return the file, to be read."""
        if create or writable:
            raise OSError(errno.EROFS, "A backup is not written to", path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file in the backup", path)
        stored = self._files[path]
        return _StoredFile(self._backups.open(layout.object_file(stored.sha256), writable=False), stored)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such directory in the backup", path)
        return sorted(self._names[path])

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has that name."""
        return path in self._files or path in self._names


def check_stored(backups: IFilesystem, manifest: Manifest) -> None:
    """Verify a backup as ``txbroker verify --deep`` does a data directory; raises :class:`CorruptBackup` for damage."""
    directory: Any = StoredDirectory(backups, manifest)
    damage = [finding for finding in check.verify(directory, Level.DEEP) if not finding.harmless]
    if damage:
        first = damage[0]
        more = f", and {len(damage) - 1:,} more places" if len(damage) > 1 else ""
        raise CorruptBackup(
            f"backup {manifest.name}: {first.path} at {first.position}: {first.problem}{more}. It is as it was stored, "
            "so the data were damaged when it was made. 'txbroker verify DIR' (once the broker is stopped) says what "
            "is damaged in these",
            layout.manifest_file(manifest.name),
        )
