"""How much of the disk must be free for new work to be taken, and what is said where there is not as much.

Three files of ``file_bytes`` are laid out ahead of need: the journal file that is written, the next one (the spare),
and the ballast. Beside them ``low_water_bytes`` must stay free, and one file more, for finishing what was begun.
"""

from __future__ import annotations

from journal.constants import MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size

FIRST_FILES = 2
"""Journal files that a first start lays out: the one that is written, and the spare."""

COPIES = 3
"""How often what is accepted may come to lie on the disk: in the journal, in a staged file, in a segment."""

SCARCE = 4
"""With more free space than this many times the pool what is under way is not added up."""

NEW_WORK_REFUSED = (
    "NEW WORK IS REFUSED (DiskFull): {lack}. Reading, deleting, commit and rollback work; make room, or start with "
    "low_water_bytes or file_bytes set lower"
)


def reserve(settings: JournalSettings) -> int:
    """Bytes that must stay free, beside what is under way: below it new work is refused."""
    return settings.low_water_bytes + settings.file_bytes


def under_way(engine: Engine, file_bytes: int) -> int:
    """Bytes that the disk is still to take of what has been accepted, at most; and of the next journal file."""
    tails = sum(store.unflushed_bytes for store in engine.dirty)
    staged = sum(each.staged.bytes for each in engine.transactions.live.values())
    spare = 0 if engine.journal.spare_exists() else file_bytes
    return tails + staged * (COPIES - 1) + engine.pending_bytes * COPIES + spare


def ballast_bytes(filesystem: IFilesystem) -> int:
    """How much ballast there is; less than there should be after a power cut amid its filling."""
    if not filesystem.exists(filenames.BALLAST):
        return 0
    return file_size(filesystem, filenames.BALLAST)


def shortage(filesystem: IFilesystem, settings: JournalSettings, files: int) -> str:
    """Say what is missing if new work is refused once the broker's own files are there; "" if nothing is.

    ``files`` journal files are to be laid out yet, and what the ballast lacks of its size.
    """
    missing_ballast = max(0, settings.file_bytes - ballast_bytes(filesystem))
    own = files * settings.file_bytes + missing_ballast
    needed, free = own + reserve(settings), filesystem.free_bytes()
    if free >= needed:
        return ""
    return (
        f"{_mebibytes(free)} are free on the disk, {_mebibytes(needed)} are needed: {_mebibytes(own)} for files that "
        f"are laid out ahead (journal and ballast, file_bytes={_mebibytes(settings.file_bytes)} each), and "
        f"{_mebibytes(reserve(settings))} that stay free for finishing what was begun "
        f"(low_water_bytes={_mebibytes(settings.low_water_bytes)} and file_bytes)"
    )


def check_first_start(filesystem: IFilesystem, settings: JournalSettings, has_spare: bool) -> None:
    """Raise :class:`DiskFull` for a directory without data on a disk that is too small to take any."""
    if lack := shortage(filesystem, settings, FIRST_FILES - has_spare):
        raise DiskFull(
            f"the disk is too small for these settings: {lack}. A broker would refuse everything. There are no data "
            "yet, and nothing was written; make room, say another directory, or set low_water_bytes or file_bytes lower"
        )


def refused_work(filesystem: IFilesystem, settings: JournalSettings, has_spare: bool) -> list[str]:
    """What a start of a directory with data says on such a disk, where what was begun must be finished; or nothing."""
    lack = shortage(filesystem, settings, 0 if has_spare else 1)
    return [NEW_WORK_REFUSED.format(lack=lack)] if lack else []


def _mebibytes(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
