"""A violation is what a drill may find wrong."""

from __future__ import annotations

import enum

import msgspec


class Wrong(enum.Enum):
    """The kinds of violations; each breaks a promise of docs/guarantees.md."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    HALF_VISIBLE = "half-visible"
    OUT_OF_ORDER = "out of order"
    CHANGED = "changed"
    MOVED = "moved"
    NEVER_SENT = "never sent"
    GAP = "gap"
    CONTRADICTED = "contradicted"
    PREPARE_LOST = "prepare lost"
    IN_DOUBT = "still in doubt"
    OFFSETS = "offsets"
    HANDLED_TWICE = "handled twice"
    NEVER_HANDLED = "never handled"
    CLAIM = "claim"
    EARLY = "early"
    ACKNOWLEDGED_AND_BACK = "acknowledged and back"
    HALF_DONE = "half done"
    UNSEEN = "seen and gone"
    FILES = "files"
    OLD_CONTENT = "old content"
    SURPRISE = "surprise"
    BROKER = "broker"


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One violation. ``ledger`` is file and line of the proof."""

    wrong: Wrong
    text: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    transaction: str = ""
    client: str = ""
    ledger: str = ""

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}" if self.topic and self.partition is not None else self.topic
        where = [place] if place else []
        where += [f"offset {self.offset}"] if self.offset is not None else []
        where += [f"transaction {self.transaction}"] if self.transaction else []
        where += [self.client] if self.client else []
        where += [self.ledger] if self.ledger else []
        return f"{self.wrong.value}: {self.text}" + (f" ({', '.join(where)})" if where else "")
