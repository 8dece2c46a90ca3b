"""Whether a directory may be taken for a data directory, and is of a format version that is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from journal.errors import ForeignDirectory, UnknownFormat
from journal.formats import filenames
from journal.formats.checkpoint import MAGIC as CHECKPOINT_MAGIC
from journal.formats.version import FORMAT, KNOWN, LAYOUT, OLDEST_FORMAT, PROGRAM, version_of
from journal.formats.version_file import read_version
from journal.formats.witness import MAGIC as WITNESS_MAGIC
from journal.interfaces import IFilesystem
from journal.records.journal_headers import FILE_MAGIC
from journal.vfs.file_window import read_some

SHOWN = 5
"""How many foreign names the refusal lists."""

_harmless = re.compile(r"lost\+found|.+\.pid|.+\.log(\.[0-9]+)?")
"""Names that a new file system holds, or that a daemon may have written before, such as ``twistd.pid``."""


def check_ours(filesystem: IFilesystem) -> None:
    """Raise :class:`ForeignDirectory` if a start would mix its files with those of something else. Writes nothing.

    Missing and empty directories are fine, and so are the files that a start or a repair left, wherever it was cut.
    Foreign files in a data directory are ignored.
    """
    if not filesystem.exists("") or _is_data_directory(filesystem):
        return
    foreign = [
        name
        for name in filesystem.list_directory("")
        if not filenames.is_in_root(name) and not _harmless.fullmatch(name)
    ]
    if foreign:
        more = f" and {len(foreign) - SHOWN:,} more" if len(foreign) > SHOWN else ""
        raise ForeignDirectory(
            f"the directory holds {', '.join(map(repr, foreign[:SHOWN]))}{more}, and no journal: it is of something "
            "else, and a start would fill it with files of its own. Nothing was written or changed. Name an empty "
            "directory, or one that does not exist yet. If data of a broker was here, its journal is gone: restore "
            "that from a copy"
        )


def check_version(filesystem: IFilesystem) -> None:
    """Raise :class:`UnknownFormat` if the directory is of a format version that is not known. Writes nothing.

    That is, if the file ``txbroker.version`` says so; or if another file does and none says that it is of ours: a
    single one may be damaged.
    """
    written = read_version(filesystem)
    if written is not None and not OLDEST_FORMAT <= written.format <= FORMAT:
        raise _unknown(filenames.VERSION, written.format, written.program)
    foreign: tuple[str, int] | None = None
    for path, known in _versioned(filesystem):
        try:
            found = version_of(read_some(filesystem, path, 0, len(known)), known)
        except OSError:
            continue  # it says nothing here; what needs the file tells of it
        if found == LAYOUT:
            return
        if found and foreign is None:
            foreign = path, found
    if foreign is not None:
        raise _unknown(*foreign)


def _unknown(path: str, found: int, program: str = "") -> UnknownFormat:
    """Return the error for a directory of that format, which ``path`` tells; ``program`` wrote it, "" if not known."""
    if found < OLDEST_FORMAT:
        writer = f"txbroker {program}" if program else "a development version from before the first release"
        step = "Begin with an empty directory, or go on with the version that wrote it"
    else:
        writer = f"txbroker {program}" if program else "a newer version of txbroker"
        step = (
            f"Start version {program or 'that wrote it'} or a newer one here, or go back to this one with the backup "
            "that was made before the upgrade (docs/upgrading.md)"
        )
    return UnknownFormat(
        f"{path} says that the data directory is of format {found}, written by {writer}; this is txbroker "
        f"{PROGRAM}, which {KNOWN}. Nothing was written or changed. {step}",
        path,
    )


def _versioned(filesystem: IFilesystem) -> Iterator[tuple[str, bytes]]:
    """The files that say the version, each with what it begins with in ours; the first one is nearly always there."""
    if filesystem.exists(filenames.WITNESS):
        yield filenames.WITNESS, WITNESS_MAGIC
    kinds = {filenames.CHECKPOINT_DIRECTORY: CHECKPOINT_MAGIC, filenames.JOURNAL_DIRECTORY: FILE_MAGIC}
    for directory, known in kinds.items():
        if filesystem.exists(directory):
            for name in filesystem.list_directory(directory):
                yield f"{directory}/{name}", known


def _is_data_directory(filesystem: IFilesystem) -> bool:
    """Return whether a start got as far as the lock here, before which the directories are forced; or it is a copy."""
    directories = [name for name in filenames.DIRECTORIES if filesystem.exists(name)]
    if directories and filesystem.exists(filenames.LOCK):
        return True
    if filenames.JOURNAL_DIRECTORY not in directories:
        return False
    try:
        names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    except NotADirectoryError:  # a file of something else
        return False
    return any(map(filenames.is_in_journal, names))
