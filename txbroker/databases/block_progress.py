"""The stage of a block, and what remains to be done at the broker if its program has lost the block."""

from __future__ import annotations

import enum
from typing import Any, Protocol

from journal.transaction_states import State
from journal.xid import Xid
from txbroker.databases.adapters.database import Database, OutboxRow


class OutboxPart(Protocol):
    """The row of a block that leaves its messages in the database."""

    row: OutboxRow

    @property
    def xid(self) -> Xid:
        """What names the block."""

    def ended(self, is_committed: bool) -> None:
        """Note how the database has ended it. A repetition does no harm."""

    def unknown(self) -> None:
        """Note that nobody here knows how it ended."""

    def shown(self) -> Any:
        """Return a promise for when its messages are visible."""


class Side(Protocol):
    """The broker's part of a block, as a client drives it."""

    connection: Any

    @property
    def identity(self) -> str:
        """Return the identity of the broker's data."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was sent or received."""

    def open(self, xid: Xid) -> None:
        """Begin; asks the broker nothing."""

    async def prepare(self) -> None:
        """Run step 4; returns once it is forced."""

    def tell(self, commit: bool, key: str = "") -> Any:
        """Begin step 6, or a rollback, prepared or not, without waiting. A repetition does no harm.

        With ``key`` the row is deleted later (step 7). A rollback never raises if there is no broker.
        """

    async def put_in_outbox(self, database: Database) -> OutboxPart | None:
        """Return the row for the messages, if the block can leave them in the database; None if it is two-phase.

        Raises what keeps it from COMMIT.
        """

    async def wait_for_earlier(self, database: Database, table: str) -> None:
        """Wait until what its database connection has left in the database before is delivered."""

    def ended_by_database(self, part: OutboxPart, commit: bool) -> Any:
        """Note how the database has ended a block that has left its messages there. A repetition does no harm."""

    async def shown(self, told: Any) -> None:
        """Return when the caller chose to: at once, or when what :meth:`tell` has begun is done."""

    def abandon(self) -> None:
        """Leave the end to the resolver. A repetition does no harm."""


class Step(enum.Enum):
    """The stage of a block."""

    NEW = "not begun"
    OPEN = "begun"
    PREPARED = "prepared at the broker, or being prepared"
    COMMITTING = "being committed by the database"
    DECIDED = "decided, and the broker may not have been told"
    ENDED = "ended"


class BlockProgress:
    """The stage of a block. It refers only to the broker's side of it, so it does not keep the program's part alive."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.step = Step.NEW
        self.outcome = State.ACTIVE
        """ACTIVE inside of the block, PREPARED if how it ended is not known, else COMMITTED or ROLLED_BACK."""
        self.key = ""
        """The key of the row that decides, once the broker is asked to prepare."""
        self.outbox: OutboxPart | None = None
        """The row with its messages, if they travel in the database."""
        self.is_lost = False
        """Whether its program cannot end it any more, so that its database connection must be checked."""

    @property
    def decides(self) -> bool:
        """Whether it is more than an ordinary commit of the database."""
        return bool(self.key) or self.outbox is not None

    def decide(self, outcome: State) -> None:
        """Note that the database has committed, or has been rolled back, or can only be."""
        self.outcome = outcome
        self.step = Step.DECIDED

    def tell(self) -> Any:
        """Tell the broker the decision: the end, for this side. After an interrupt, call it again."""
        if self.outbox is not None:
            self.outbox.ended(self.outcome is State.COMMITTED)
            told = self.side.ended_by_database(self.outbox, self.outcome is State.COMMITTED)
        else:
            commit = self.outcome is State.COMMITTED and bool(self.key)
            told = self.side.tell(commit, self.key if commit else "")
        self.step = Step.ENDED
        return told

    def leave_undecided(self) -> None:
        """Leave the block undecided: the resolver finds out how it ends."""
        self.outcome = State.PREPARED
        if self.outbox is not None:
            self.outbox.unknown()
        self.side.abandon()
        self.step = Step.ENDED

    def end_without_program(self) -> None:
        """End the broker's side of a block whose program has lost it, whatever happens at the database.

        Once it is prepared, only the database decides: its transaction may still be open, with the row in it.
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
