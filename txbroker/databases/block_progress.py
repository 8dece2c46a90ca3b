"""How far a block is, and what its broker is to be told: what is left to do of a block that its program has lost."""

from __future__ import annotations

import enum
from typing import Any, Protocol

from journal.transaction import State, Xid


class Side(Protocol):
    """The broker's part of a block, as a client drives it."""

    connection: Any

    @property
    def identity(self) -> str:
        """Of the broker's data."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent or received."""

    def open(self, xid: Xid) -> None:
        """Begin; asks the broker nothing."""

    async def prepare(self) -> None:
        """Step 4; returns once it is forced."""

    def tell(self, commit: bool, key: str = "") -> Any:
        """Begin step 6, or to roll back, prepared or not; waits for nothing. Said again, it does no harm.

        With ``key`` the row is deleted later (step 7). A roll-back never raises for want of a broker.
        """

    async def shown(self, told: Any) -> None:
        """Return when the caller chose to: at once, or when what :meth:`tell` has begun is done."""

    def abandon(self) -> None:
        """The resolver will find out how it ended. Said again, it does no harm."""


class Step(enum.Enum):
    """How far a block is."""

    NEW = "not begun"
    OPEN = "begun"
    PREPARED = "prepared at the broker, or being prepared"
    COMMITTING = "being committed by the database"
    DECIDED = "decided, and the broker may not have been told"
    ENDED = "ended"


class BlockProgress:
    """How far a block is. It refers to the broker's side of it only, so it does not keep the program's part alive."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.step = Step.NEW
        self.outcome = State.ACTIVE
        """ACTIVE inside of the block, PREPARED if how it ended is not known, else COMMITTED or ROLLED_BACK."""
        self.key = ""
        """Of the row that decides, once the broker is asked to prepare."""
        self.is_lost = False
        """Whether its program cannot end it any more, so that its database connection is to be looked at."""

    def decide(self, outcome: State) -> None:
        """The database has committed, or has been rolled back, or can only be."""
        self.outcome = outcome
        self.step = Step.DECIDED

    def tell(self) -> Any:
        """Tell the broker what was decided: the end, for this side. Interrupted, it is to be said again."""
        commit = self.outcome is State.COMMITTED and bool(self.key)
        told = self.side.tell(commit, self.key if commit else "")
        self.step = Step.ENDED
        return told

    def leave_undecided(self) -> None:
        """Others find out how it ends."""
        self.outcome = State.PREPARED
        self.side.abandon()
        self.step = Step.ENDED

    def end_without_program(self) -> None:
        """End the broker's side of a block whose program has lost it, whatever becomes of the database's side.

        Prepared, only the database knows: its transaction may be open yet, with the row in it.
        """
        self.is_lost = True
        if self.step is Step.DECIDED:
            self.tell()
        elif self.step is Step.OPEN:
            self.decide(State.ROLLED_BACK)
            self.tell()
        elif self.step in (Step.PREPARED, Step.COMMITTING):
            self.leave_undecided()
        self.step = Step.ENDED
