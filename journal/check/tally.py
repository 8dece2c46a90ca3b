"""The counts of a verification."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Tally:
    """Counts. ``bytes`` were read for checking, ``messages`` of the logs were checked.

    ``placed`` messages of the logs have been compared with the journal, ``compared`` of the ``committed`` transactions
    were compared whole; the others' adds are older than the journal. ``archived`` entries of the outcome archive were
    compared with the journal's decisions.
    """

    files: int = 0
    bytes: int = 0
    journal_files: int = 0
    records: int = 0
    checkpoints: int = 0
    partitions: int = 0
    segments: int = 0
    messages: int = 0
    staged_files: int = 0
    committed: int = 0
    compared: int = 0
    rolled_back: int = 0
    undecided: int = 0
    placed: int = 0
    archived: int = 0

    def facts(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)
