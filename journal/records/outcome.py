"""The outcome of one transaction: for answers, checkpoints and people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from journal.parties import Actor, Owner
from journal.records.record import Placement
from journal.transaction_states import Cause, State, TransactionNumber
from journal.xid import Xid


class Told(msgspec.Struct, array_like=True, frozen=True):
    """A coordinator's decision after the heuristic outcome: what, when (wall clock), and from which address."""

    decided: State
    wall: int
    by: Actor | None


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """The outcome of a transaction. ``heuristic``: a person or policy decided it after it was prepared.

    ``at`` is journal time. ``wall`` is when it ended, ``began`` and ``prepared`` (0: never) when it did so, by the wall
    clock, for people. ``messages`` and ``checksum`` (CRC-32C of all frames as they were sent) are what a repeated
    request for a decision must have. ``by`` ended it from elsewhere, ``owner`` began it.
    """

    number: TransactionNumber
    state: State
    cause: Cause
    at: int
    xid: Xid | None = None
    by: Actor | None = None
    why: str = ""
    placements: list[Placement] = []
    heuristic: bool = False
    told: Told | None = None
    owner: Owner | None = None
    messages: int = 0
    bytes: int = 0
    wall: int = 0
    began: int = 0
    prepared: int = 0
    checksum: int = 0

    @property
    def contradicted(self) -> bool:
        """Whether its coordinator decided the opposite: damage, until a person has handled it."""
        return self.told is not None and self.told.decided is not self.state

    def describe(self) -> str:
        """Return one clause for error messages: what happened, by whom, when and why."""
        by = f" by {self.by}" if self.by else ""
        when = f" at {wall_text(self.wall)}" if self.wall else ""
        why = f": {self.why}" if self.why else ""
        return f"{verb(self.state)}{by}{when} ({self.cause.name.lower().replace('_', ' ')}){why}"


def verb(state: State) -> str:
    """Return the verb for what was done to a decided transaction."""
    return "committed" if state is State.COMMITTED else "rolled back"


def wall_text(wall: int) -> str:
    """Return µs since 1970 as text for people: UTC, to the second."""
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall)
    except OverflowError:
        return f"{wall} µs"
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
