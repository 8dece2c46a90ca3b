"""The accounts of sessions: what the broker holds for each until a force, as requests and waiting answers.

A request counts from when it is decoded until its answer is sent, by its bytes and
:data:`~txbroker.broker.sessions.scheduler.REQUEST`, which covers a small answer; larger answers count beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from journal.constants import KIB
from txbroker.broker.sessions.scheduler import REQUEST

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.sessions.session import Session

SMALL: Final = REQUEST
"""Answers up to this size are counted with their requests."""

UNCOUNTED: Final = 4 * KIB
"""The least amount that is put on an account: counting each small request would cost 4,000 instructions, 2 to 5
% of it.
"""


class Accounts:
    """Counts for each session, in ``session.held``, and for all of them together, in ``held``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._when_forced = engine.when_forced
        self.held = 0

    def put(self, session: Session, answer: bytes) -> None:
        """Give the session its answer once everything accepted so far is forced and shown; now, if it is already."""
        if len(answer) > SMALL:
            self.until_forced(session, len(answer))
        self._when_forced(session.deliver, answer)

    def charge(self, session: Session, size: int) -> None:
        """Count ``size`` until everything accepted by now is forced. Memory that a large commit keeps is not
        counted here.
        """
        engine = self._engine
        if engine.forced_lsn + 1 != engine.next_lsn:
            session.held += size
            self.held += size
            engine.passing = True
            self._when_forced(self._repay, (session, size))
            engine.passing = False

    def until_forced(self, session: Session, size: int) -> None:
        """Count ``size`` until an answer that is given now is sent."""
        self.add(session, size)
        self._when_forced(self._repay, (session, size))

    def add(self, session: Session, size: int) -> None:
        """Add ``size``, which may be negative, for memory that is counted elsewhere."""
        session.held += size
        self.held += size

    def _repay(self, account: tuple[Session, int]) -> None:
        session, size = account
        session.held -= size
        self.held -= size
