"""Manifests: what a backup consists of. One that can be read is a whole backup, because it is written last.

A manifest is two lines: the SHA-256 of the second in hexadecimal, and that, which is JSON.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from journal.backup import layout
from journal.errors import CorruptBackup, UnknownBackup, UnknownFormat
from journal.formats.version import FORMAT, KNOWN, PROGRAM
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size, read_some
from journal.vfs.filesystem import check_path, write_fully

LAYOUT = 1


class StoredFile(msgspec.Struct, frozen=True):
    """A file of ``size`` bytes, of which the first ``length`` are the object ``sha256``, and the others zeros."""

    path: str
    size: int
    length: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup. All records up to the LSN ``cut`` are in it, above those in the checkpoint at ``checkpoint`` (0: none).

    ``start`` and ``nonce`` (in hexadecimal) are of the start that it was made of, ``made`` is µs since 1970. ``format``
    is the files' format version, ``program`` the version of the program that made the backup.
    """

    layout: int = LAYOUT
    name: str
    made: int
    identity: str
    start: int
    nonce: str
    checkpoint: int
    cut: int
    format: int = FORMAT
    program: str = PROGRAM
    files: list[StoredFile]

    @property
    def bytes(self) -> int:
        """The bytes of all contents, also of those that other backups share."""
        return sum(file.length for file in self.files)

    def objects(self) -> dict[str, int]:
        """Return the objects that it consists of, and the length of each."""
        return {file.sha256: file.length for file in self.files}


_decode = msgspec.json.Decoder(Manifest).decode


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    packed = msgspec.json.encode(manifest)
    return sha256(packed).hexdigest().encode() + b"\n" + packed


def write_manifest(filesystem: IFilesystem, manifest: Manifest) -> None:
    """Write a manifest durably. All that it names must be on disk: from now on the backup counts."""
    scratch = f"{layout.SCRATCH}/{layout.SCRATCH_MANIFEST}"
    file = filesystem.open(scratch, create=True)
    try:
        write_fully(file, 0, [pack_manifest(manifest)])
        file.force()
    finally:
        file.close()
    filesystem.rename(scratch, layout.manifest_file(manifest.name))
    filesystem.force_directory(layout.MANIFESTS)


def read_manifest(filesystem: IFilesystem, name: str) -> Manifest:
    """Return a backup's manifest. Raises :class:`UnknownBackup`, :class:`CorruptBackup` if it is damaged, and
    ``PermissionError`` if it may not be read.
    """
    layout.number_of_backup(name)
    path = layout.manifest_file(name)
    if name not in layout.backup_names(filesystem):
        raise UnknownBackup(
            f"there is no backup {name}; nothing was done. 'txbroker backup list' has those there are"
        )
    try:
        digest, _, packed = read_some(filesystem, path, 0, file_size(filesystem, path)).partition(b"\n")
    except PermissionError:
        raise
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    if sha256(packed).hexdigest().encode() != digest:
        raise _damaged(path, "it fails its checksum")
    try:
        manifest = _decode(packed)
        for file in manifest.files:
            _check(file)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(path, f"it is not one of this version ({error})") from error
    if manifest.layout != LAYOUT:
        raise _damaged(
            path, f"it is of layout {manifest.layout}, made by txbroker {manifest.program}, a newer version"
        )
    if manifest.name != name:
        raise _damaged(path, f"it is of backup {manifest.name}")
    return manifest


def check_format(manifest: Manifest) -> None:
    """Raise :class:`UnknownFormat` for a backup of data whose format is not known here."""
    if manifest.format > FORMAT:
        raise UnknownFormat(
            f"backup {manifest.name} is of format {manifest.format}, made by txbroker {manifest.program}; this is "
            f"txbroker {PROGRAM}, which {KNOWN}. Nothing was written or changed. Restore it "
            f"with version {manifest.program} or a newer one, or choose a backup of before the upgrade",
            layout.manifest_file(manifest.name),
        )


def _check(file: StoredFile) -> None:
    check_path(file.path)
    if not file.path or not 0 <= file.length <= file.size or not layout.is_digest(file.sha256):
        raise ValueError(f"{file.path!r} has no such content")


def _damaged(path: str, what: str) -> CorruptBackup:
    return CorruptBackup(
        f"{path} is damaged: {what}. What the backup consists of is not known, so it cannot be restored; nothing was "
        "changed. Put this file back from a copy; or restore another backup (--backup), and give this one up by "
        "removing the file: 'txbroker backup prune' then removes what it alone needed",
        path,
    )
