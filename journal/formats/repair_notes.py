"""The notes of repairs in a data directory, so that losses are never hidden later; and what stops a start."""

from __future__ import annotations

import msgspec

from journal.errors import CorruptData
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.vfs.file_window import opened


class RepairNote(msgspec.Struct, frozen=True, kw_only=True):
    """One repair, as ``repairs.json`` keeps it. ``when`` is a time in UTC, ``evidence`` the side folder.

    ``damage``, ``changed`` and ``lost`` are sentences for people, ``losses`` is what was lost as data.
    """

    when: str
    evidence: str
    damage: list[str]
    changed: list[str]
    lost: list[str]
    losses: list[dict[str, object]] = []


_decode = msgspec.json.Decoder(list[RepairNote]).decode


MOST_TOLD = 6
"""How many losses of one repair each start and each verification repeat; the file has all of them."""


def repair_notes(filesystem: IFilesystem) -> list[RepairNote]:
    """Return the repairs that were made here, oldest first. Raises :class:`CorruptData` if the file cannot be read."""
    if not filesystem.exists(filenames.REPAIRS):
        return []
    try:
        with opened(filesystem, filenames.REPAIRS) as file:
            return _decode(bytes(file.read(0, file.size())))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptData(
            f"{filenames.REPAIRS} cannot be read ({error}): what earlier repairs lost is in it. Nothing was changed",
            filenames.REPAIRS,
        ) from error


def told(note: RepairNote) -> str:
    """Return a repair in one sentence."""
    lost = "; ".join(note.lost[:MOST_TOLD]) if note.lost else "nothing"
    if len(note.lost) > MOST_TOLD:
        lost += f"; and {len(note.lost) - MOST_TOLD} more, see {filenames.REPAIRS}"
    return f"repaired on {note.when}, lost: {lost}. What it replaced is in {note.evidence}/"


UNFINISHED = (
    "a repair of this directory was begun and not finished. Nothing was changed now. Run 'txbroker repair DIR "
    "--execute' again: it goes on where it ended"
)
"""The message of a start that finds a plan."""

RESTORE_UNFINISHED = (
    "a backup was being restored to this directory, and that was not finished: it holds a part of the backup alone. "
    "Nothing was changed now. Remove all that is in it, and run 'txbroker restore' again; the backup is as it was"
)
"""The message of a start that finds a restore's mark."""
