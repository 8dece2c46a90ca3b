"""Whether a directory may be taken for a data directory: a first start fills none that holds something else."""

from __future__ import annotations

import re

from journal.errors import ForeignDirectory
from journal.formats import filenames
from journal.interfaces import IFilesystem

SHOWN = 5
"""Foreign names that the refusal tells."""

_harmless = re.compile(r"lost\+found|.+\.pid|.+\.log(\.[0-9]+)?")
"""What a new file system holds, and what a daemon may have written before it gets here, as ``twistd.pid``."""


def check_ours(filesystem: IFilesystem) -> None:
    """Raise :class:`ForeignDirectory` if a start would mix its files with those of something else. Writes nothing.

    Missing and empty directories are fine, and so is whatever a start or a repair left, wherever it was cut. Once a
    directory is a data directory foreign files in it are nobody's business here.
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


def _is_data_directory(filesystem: IFilesystem) -> bool:
    """Whether a start got as far as the lock here, before which the directories are made and forced; or a copy."""
    directories = [name for name in filenames.DIRECTORIES if filesystem.exists(name)]
    if directories and filesystem.exists(filenames.LOCK):
        return True
    if filenames.JOURNAL_DIRECTORY not in directories:
        return False
    try:
        names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    except NotADirectoryError:  # somebody else's file
        return False
    return any(map(filenames.is_in_journal, names))
