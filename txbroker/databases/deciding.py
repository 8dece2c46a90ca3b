"""One block: the protocol of ``docs/atomic.md``, step by step, the same for every face."""

from __future__ import annotations

from typing import Any, Protocol

from txbroker.databases.adapter import Database


class Broker(Protocol):
    """The broker's transaction of a block, as a face drives it."""


class Deciding:
    """The steps of one block. Integrations with hooks of their own (SQLAlchemy, Django) call them one by one:

    ``enter`` → (the work) → ``prepare`` (decide and prepare; the last thing before COMMIT) → COMMIT, by whoever does that →
    ``committed``, or ``failed(error)`` if COMMIT raised, or ``rolled_back`` if it came to none. ``leave`` does all of that.
    """

    def __init__(self, database: Database, broker: Broker, application: str = "", wait: str = "decision") -> None:
        raise NotImplementedError

    async def enter(self) -> None:
        """Step 1: begin or join the transaction, mark it, read the decision table's identity."""

    async def prepare(self) -> bool:
        """Steps 3 and 4. False: nothing was sent, so there is nothing to decide. Raises: both can only be rolled back."""
        raise NotImplementedError

    async def committed(self) -> None:
        """Step 6: the database has committed."""

    async def failed(self, error: BaseException) -> None:
        """COMMIT raised ``error``: rolls the broker back if that is known, raises OutcomeUnknown if not."""

    async def rolled_back(self) -> None:
        """The database has been rolled back, or will be for certain: roll the broker back."""

    async def leave(self, error: BaseException | None) -> None:
        """The end of a ``with``: all steps that are left."""

    tx: Any
