"""The choice of the checkpoint that a start uses: the newest sound one. Unsound ones are reported.

A checkpoint is sound if its bytes are as they were written and its rows have the form in which their folds keep them.
"""

from __future__ import annotations

from typing import NamedTuple

from journal.checkpoints.rows import read_sound
from journal.errors import NEXT_STEP, CorruptJournal
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, CheckpointHeader
from journal.formats.witness import Witness
from journal.interfaces import IFilesystem

KEPT = 2
"""How many checkpoints are kept."""


class CheckpointChoice(NamedTuple):
    """The chosen checkpoint. ``newest`` is the newest sound one, None if there never was any.

    ``kept`` are the headers of it and of the sound one before it, oldest first; ``notes`` are lines to report.
    """

    newest: Checkpoint | None
    kept: list[CheckpointHeader]
    notes: list[str]


def choose_checkpoint(filesystem: IFilesystem, witness: Witness) -> CheckpointChoice:
    """Read the checkpoints, newest first; raises :class:`CorruptJournal` if there are some and none is sound."""
    names = filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
    lsns = sorted(lsn for name in names if (lsn := filenames.parse_checkpoint_file(name)) is not None)
    newest: Checkpoint | None = None
    kept: list[CheckpointHeader] = []
    notes: list[str] = []
    damage = ""
    for lsn in reversed(lsns):
        try:
            checkpoint = read_sound(filesystem, lsn)
        except CorruptJournal as error:
            damage = damage or str(error)
            used = f"the one at LSN {newest.header.lsn}" if newest else "the checkpoint before it"
            notes.append(f"{error}; {used} is used")
            continue
        newest = newest or checkpoint
        kept.insert(0, checkpoint.header)
        if len(kept) == KEPT:
            break
    if witness.checkpoint > max(lsns, default=0):
        notes.append(
            f"{filenames.checkpoint_file(witness.checkpoint)} is missing; what it held is taken from the checkpoint "
            "before it and the journal"
        )
    if lsns and newest is None:
        raise CorruptJournal(
            f"none of the {len(lsns)} checkpoints can be read: {damage}. The journal alone may not hold all that there "
            f"was, so the start is refused. Restore one of them from a copy. {NEXT_STEP}",
            filenames.checkpoint_file(lsns[-1]),
        )
    return CheckpointChoice(newest, kept, notes)
