"""The free disk space below which new work is refused, and the texts of that refusal.

Three files of ``file_bytes`` are laid out ahead of need: the journal file that is written, the next one (the spare),
and the ballast. Beside them ``low_water_bytes`` must stay free, and space for one more file, so that begun work can be
finished.
"""

from __future__ import annotations

from journal.constants import MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size

COPIES = 3
"""How many copies of accepted bytes the disk may get: in the journal, in a staged file, in a segment."""

FIRST_FILES = 2
"""How many journal files a first start lays out: the one that is written, and the spare."""

SCARCE = 4
"""With more free space than this many times the pool, work under way is not added up."""

NEW_WORK_REFUSED = (
    "NEW WORK IS REFUSED (DiskFull): {lack}. Reading, deleting, commit and rollback work; make room, or start with "
    "low_water_bytes or file_bytes set lower"
)


def reserve(settings: JournalSettings) -> int:
    """Return the bytes that must stay free, beside work under way: below this new work is refused."""
    return settings.low_water_bytes + settings.file_bytes


def under_way(engine: Engine, file_bytes: int) -> int:
    """Return how many bytes accepted work, and the next journal file, may still take on the disk."""
    tails = sum(store.unflushed_bytes for store in engine.dirty)
    staged = sum(each.staged.bytes for each in engine.transactions.live.values())
    spare = 0 if engine.journal.spare_exists() else file_bytes
    return tails + staged * (COPIES - 1) + engine.pending_bytes * COPIES + spare


def copies_under_way(engine: Engine) -> int:
    """Return how many bytes messages of undecided transactions will take in the second and further of their queues."""
    staged = [each.staged for each in engine.transactions.live.values()]
    return sum([each.placed_bytes - each.bytes for each in staged if each.placed_bytes > each.bytes])


def ballast_bytes(filesystem: IFilesystem) -> int:
    """Return the size of the ballast; it is too small after a power cut while it was filled."""
    if not filesystem.exists(filenames.BALLAST):
        return 0
    return file_size(filesystem, filenames.BALLAST)


def shortage(filesystem: IFilesystem, settings: JournalSettings, files: int) -> str:
    """Return what is missing if new work will be refused once the broker's own files exist; "" if nothing is.

    ``files`` journal files are to be laid out yet, and the missing part of the ballast.
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
    """Raise :class:`DiskFull` for a directory without data on a disk that is too small for any."""
    if lack := shortage(filesystem, settings, FIRST_FILES - has_spare):
        raise DiskFull(
            f"the disk is too small for these settings: {lack}. A broker would refuse everything. There are no data "
            "yet, and nothing was written; make room, say another directory, or set low_water_bytes or file_bytes lower"
        )


def refused_work(filesystem: IFilesystem, settings: JournalSettings, has_spare: bool) -> list[str]:
    """Return the lines for a start of a directory with data on such a disk, where begun work can only be finished."""
    lack = shortage(filesystem, settings, 0 if has_spare else 1)
    return [NEW_WORK_REFUSED.format(lack=lack)] if lack else []


def _mebibytes(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
