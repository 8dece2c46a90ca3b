"""What users did, and what they were told: the notes that the judge reads."""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from tests.access_drill.rules_model import Need, Shown


class Result(Enum):
    """How an act ended. ``OUT``: not let in; ``REFUSED``: for another reason than a right; ``UNKNOWN``: no answer."""

    DONE = "done"
    DENIED = "denied"
    OUT = "not let in"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Act(msgspec.Struct, kw_only=True):
    """One call of a client, with the rights that it needs (written here, not taken from the broker's table).

    ``shown`` has what was shown for logins since the call began; ``messages`` are the texts that it sends, each once in
    a drill. ``right`` and ``kind`` are what a denial names, ``found`` what a list had.
    """

    who: str
    what: str
    needs: list[Need] = []
    began: float = 0.0
    ended: float = math.inf
    result: Result = Result.UNKNOWN
    right: str = ""
    kind: str = ""
    error: str = ""
    shown: list[Shown] = []
    messages: list[str] = []
    made: str = ""
    found: list[str] = []
    has_others: bool = False
    xid: str = ""


class Block(msgspec.Struct, kw_only=True):
    """A transaction in two phases. Whoever ends it ends it as was chosen at its beginning."""

    xid: str
    owner: str
    commits: bool
    prepare: Act
    decisions: list[Act] = []

    @property
    def first_try(self) -> float:
        """When the first decision was asked for."""
        return min((each.began for each in self.decisions), default=math.inf)

    @property
    def surely_over(self) -> float:
        """When it was known to be decided."""
        return min((each.ended for each in self.decisions if each.result is Result.DONE), default=math.inf)


class Notes:
    """All acts and blocks of a drill, in the order in which they were noted. Lists take appends of every thread."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.blocks: list[Block] = []
