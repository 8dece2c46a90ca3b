"""A walk over the checkpoints, their sections verified by the second checksum implementation."""

from __future__ import annotations

from collections.abc import Iterator

from journal.checkpoints.rows import read_sound
from journal.errors import CorruptData
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, End, walk_sections
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size
from journal.walks.findings import Finding, second_crc32c, unreadable
from journal.words import count_text


def checkpoint_lsns(filesystem: IFilesystem) -> list[int]:
    """Return the LSNs of the checkpoint files, oldest first."""
    if not filesystem.exists(filenames.CHECKPOINT_DIRECTORY):
        return []
    names = filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
    return sorted(lsn for name in names if (lsn := filenames.parse_checkpoint_file(name)) is not None)


def checkpoints(filesystem: IFilesystem) -> Iterator[Checkpoint | Finding]:
    """Yield the checkpoints, oldest first; a damaged one is harmless while another is sound.

    One that the system does not return stops a start, which cannot judge disks. One that a running broker has removed
    since they were listed is left out; raises ``FileNotFoundError`` if none is left.
    """
    found: list[Checkpoint | Finding] = []
    removed: FileNotFoundError | None = None
    for lsn in checkpoint_lsns(filesystem):
        try:
            found.append(read_sound(filesystem, lsn, second_crc32c))
            found.extend(_behind(filesystem, lsn))
        except CorruptData as error:
            found.append(Finding(error.path, error.position, reason_of(error)))
        except FileNotFoundError as error:
            if lsn in checkpoint_lsns(filesystem):
                raise
            removed = error
        except OSError as error:
            found.append(unreadable(filenames.checkpoint_file(lsn), error))
    sound = any(isinstance(each, Checkpoint) for each in found)
    if removed is not None and not sound:
        raise removed
    for each in found:
        if isinstance(each, Finding) and sound and not each.unreadable and not each.harmless:
            yield Finding(
                each.path, each.position, f"{each.problem}; the other checkpoint is used instead", True
            )
        else:
            yield each


def _behind(filesystem: IFilesystem, lsn: int) -> Iterator[Finding]:
    """Yield what follows the last section of a sound checkpoint. No program reads it."""
    path = filenames.checkpoint_file(lsn)
    ended = False
    for position, section in walk_sections(filesystem, path):
        if ended:
            behind = count_text(file_size(filesystem, path) - position, "byte")
            yield Finding(path, position, f"{behind} follow its end and are never read", True)
            return
        ended = isinstance(section, End)


def reason_of(error: CorruptData) -> str:
    """Return an error's text without its path and position, which a finding has itself, and without the advice.

    The advice is for readers of the error elsewhere; the reader of a finding has followed it.
    """
    told = str(error).partition(". Nothing was changed")[0]
    return told.removeprefix(f"{error.path} is damaged at {error.position}: ").removeprefix(f"{error.path}: ")
