"""The store of a directory of backups: contents of files, each once, named by what they are.

An object is written under a scratch name, forced, made read-only, and renamed to the SHA-256 of its content. So what
has such a name is whole, or has rotted since. Nothing here is a link to a file elsewhere: a file of a data directory
goes on being written.
"""

from __future__ import annotations

from hashlib import sha256

from crc32c import crc32c

from journal.backup import layout
from journal.backup.contents import Piece, Proof
from journal.backup.pace import AT_ONCE, Pace
from journal.constants import MIB
from journal.errors import CorruptBackup, CorruptData
from journal.interfaces import IFile, IFilesystem
from journal.vfs.clones import clone, make_read_only
from journal.vfs.file_window import opened
from journal.vfs.filesystem import write_fully

FORCED_TOGETHER = 64
"""Most small objects that are forced at once."""
FORCED_BYTES = 8 * MIB
"""Bytes after which what was copied is forced: a force of the journal must not wait for gigabytes of a copy."""


class ObjectStore:
    """The objects, for one that holds the lock of the directory.

    With ``verify`` an object that is there already is read before it is taken for what its name says, and is written
    anew if it is not.
    """

    def __init__(self, filesystem: IFilesystem, pace: Pace, verify: bool = False) -> None:
        self._filesystem = filesystem
        self._pace = pace
        self._verify = verify
        self._known: dict[str, int] = {}
        """The objects that are stored, or will be with the next :meth:`force`, and their lengths."""
        self._unforced: list[tuple[IFile, str, str]] = []
        self._folders: set[str] = set()
        self._scratch = 0
        self.written = 0
        """Bytes of new objects."""

    def put(self, source: IFilesystem, piece: Piece) -> str:
        """Store the contents of a file of the cut; return the name of the object, durable after :meth:`force`.

        Raises :class:`CorruptData` if the file is not what the checkpoint says, and ``FileNotFoundError``.
        """
        if piece.data is not None:
            return self.put_bytes(piece.data)
        with opened(source, piece.path) as file:
            scratch, target = self._begin()
            try:
                if clone(file, target):
                    target.truncate(piece.length)
                    digest = self._read(target, piece)
                    is_copied = True
                else:
                    digest = self._read(file, piece)
                    is_copied = False
                if self._is_there(digest, piece.length):
                    self._drop(scratch, target)
                    return digest
                if not is_copied:
                    self._copy(file, target, piece, digest)
            except BaseException:
                target.close()
                raise
        self._keep(digest, piece.length, scratch, target)
        return digest

    def put_bytes(self, data: bytes) -> str:
        """Store some bytes, as :meth:`put` does a file."""
        digest = sha256(data).hexdigest()
        if not self._is_there(digest, len(data)):
            scratch, target = self._begin()
            write_fully(target, 0, [data])
            self._keep(digest, len(data), scratch, target)
        return digest

    def force(self) -> None:
        """Return once all objects are on disk under their names."""
        self._name()
        for folder in sorted(self._folders):
            self._filesystem.force_directory(folder)
        self._filesystem.force_directory(layout.OBJECTS)
        self._folders.clear()

    def close(self) -> None:
        """Close what was not forced: it does not count."""
        while self._unforced:
            self._unforced.pop()[0].close()

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, file: IFile, piece: Piece) -> str:
        """Return the SHA-256 of a file's contents; raises CorruptData if they are not what is known of them."""
        found, proof, position = sha256(), piece.proof or Proof(0, 0, 0), 0
        checksum = proof.seed
        while position < piece.length:
            data = file.read(position, min(AT_ONCE, piece.length - position))
            if not data:
                raise _differs(
                    piece, f"it ends at {position}, {piece.length} bytes had been forced", position
                )
            found.update(data)
            if piece.proof is not None:
                checksum = crc32c(memoryview(data)[max(0, proof.start - position) :], checksum)
            position += len(data)
            self._pace.count(len(data))
        if piece.proof is not None and checksum != proof.expected:
            raise _differs(piece, "its bytes are not those that the checkpoint knows", 0)
        return found.hexdigest()

    def _is_there(self, digest: str, length: int) -> bool:
        if digest in self._known:
            return True
        path = layout.object_file(digest)
        if not self._filesystem.exists(path):
            return False
        try:
            with opened(self._filesystem, path) as file:
                is_sound = file.size() == length and (
                    not self._verify or digest_of(file, length, self._pace) == digest
                )
        except PermissionError:
            raise
        except OSError:
            return False  # it cannot be read, and so is stored again
        if is_sound:
            self._known[digest] = length
        return is_sound

    # -- writing -----------------------------------------------------------------------------------

    def _begin(self) -> tuple[str, IFile]:
        self._scratch += 1
        path = f"{layout.SCRATCH}/{self._scratch}"
        return path, self._filesystem.open(path, create=True)

    def _copy(self, file: IFile, target: IFile, piece: Piece, digest: str) -> None:
        """Copy the contents, and compare what was copied with what was read before."""
        copied, position = sha256(), 0
        while position < piece.length:
            data = file.read(position, min(AT_ONCE, piece.length - position))
            if not data:
                break
            copied.update(data)
            write_fully(target, position, [data])
            position += len(data)
            if position % FORCED_BYTES < len(data):
                target.force()
            self._pace.count(len(data))
        if copied.hexdigest() != digest:
            raise _differs(piece, "its bytes changed while they were copied", 0)

    def _keep(self, digest: str, length: int, scratch: str, target: IFile) -> None:
        self._known[digest] = length
        self.written += length
        self._unforced.append((target, scratch, digest))
        if len(self._unforced) >= FORCED_TOGETHER:
            self._name()

    def _drop(self, scratch: str, target: IFile) -> None:
        target.close()
        self._filesystem.unlink(scratch)

    def _name(self) -> None:
        """Force what was written, then give it its names."""
        waiting, self._unforced = self._unforced, []
        try:
            self._filesystem.force_files([file for file, _, _ in waiting])
            for file, _, _ in waiting:
                make_read_only(file)
        finally:
            for file, _, _ in waiting:
                file.close()
        for _, scratch, digest in waiting:
            folder = layout.object_folder(digest)
            self._filesystem.make_directory(folder)
            self._filesystem.rename(scratch, layout.object_file(digest))
            self._folders.add(folder)


def digest_of(file: IFile, length: int, pace: Pace) -> str:
    """Return the SHA-256 of a file, which is read in the given pace; "" if it has not so many bytes."""
    found = sha256()
    if file.size() != length:
        return ""
    for position in range(0, length, AT_ONCE):
        data = file.read(position, min(AT_ONCE, length - position))
        found.update(data)
        pace.count(len(data))
    return found.hexdigest()


def prove(filesystem: IFilesystem, objects: dict[str, int], pace: Pace) -> None:
    """Read all of these objects. Raises :class:`CorruptBackup` for the first one that is not what its name says, and
    ``PermissionError`` for one that may not be read.
    """
    for digest, length in objects.items():
        path = layout.object_file(digest)
        try:
            with opened(filesystem, path) as file:
                is_sound = digest_of(file, length, pace) == digest
        except FileNotFoundError:
            raise damaged_object(path, "it is missing") from None
        except PermissionError:
            raise  # that it may not be read says nothing of what it is
        except OSError as error:
            raise damaged_object(path, f"it cannot be read ({error})") from error
        if not is_sound:
            raise damaged_object(path, "its content is not that of which it has its name")


def damaged_object(path: str, what: str) -> CorruptBackup:
    """Return the error for an object that is not what was stored."""
    return CorruptBackup(
        f"{path} is damaged: {what}. Backups that need it cannot be restored; nothing was changed. 'txbroker backup "
        "create --verify' stores it again if the data still have it; or put it back from a copy",
        path,
    )


def _differs(piece: Piece, what: str, position: int) -> CorruptData:
    return CorruptData(
        f"{piece.path}: {what}. No backup was made of it, and nothing was changed. 'txbroker verify DIR' (once the "
        "broker is stopped) says what is damaged, 'txbroker repair DIR --dry-run' what can be done",
        piece.path,
        position,
    )
