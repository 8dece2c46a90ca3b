"""The choice says which of the journal's sound runs are kept: all above the checkpoint up to the first gap.

Records behind a gap are not applied, though their bytes are sound: a lost record may have rolled back the transaction
that they would commit, deleted the topic that they would write to, or been the other half of an operation that they
would finish. They are kept as evidence and named as lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.formats.checkpoint import Checkpoint
from journal.repair.journal_runs import Run, SoundFile


@dataclass(slots=True)
class Choice:
    """The choice: ``kept`` runs give all records below ``end``; ``lost`` runs lie behind the first gap above the
    checkpoint.

    ``cut`` says that records are or may be lost at ``end``. ``gaps`` are the LSNs missing below ``end``; a start would
    read only frames of undecided transactions there.
    """

    kept: list[Run] = field(default_factory=list)
    lost: list[Run] = field(default_factory=list)
    end: int = 1
    cut: bool = False
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def has(self, lsn: int) -> bool:
        """Return whether the record is in a run that is kept."""
        return any(run.first_lsn <= lsn < run.end for run in self.kept)


def choose(files: list[SoundFile], checkpoint: Checkpoint | None, forced: int) -> Choice:
    """Follow the runs upwards and choose. The witness says that records up to ``forced`` had been forced."""
    needed = checkpoint.header.needed_from if checkpoint is not None else 1
    state = checkpoint.header.lsn + 1 if checkpoint is not None else 1
    choice, at, whole = Choice(), needed, False
    for number, file in enumerate(files):
        following = files[number + 1].header if number + 1 < len(files) else None
        if following is not None and following.previous_end <= needed:
            continue  # nothing needs it any more
        for run in file.runs:
            missing_end = run.header.previous_end if run.begins else run.first_lsn
            if not choice.cut and max(at, state) < missing_end:
                choice.cut, choice.end = True, max(at, state)
            if choice.cut:
                choice.lost.append(run)
                continue
            if at < missing_end:
                choice.gaps.append((at, missing_end - 1))
            choice.kept.append(run)
            at = max(at, run.end)
        whole = not file.end_is_damaged
    if not choice.cut:
        choice.end = max(at, state)
        reached = max((run.end for run in choice.kept), default=0)
        choice.cut = not whole or reached < state or forced >= choice.end
    if at < state:
        choice.gaps.append((at, state - 1))
    return choice
