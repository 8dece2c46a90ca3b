"""What each session has the broker hold until a force: requests accepted or in line, and answers that wait.

A request counts from when it is cut out of what has come until its answer goes out, by its bytes and
:data:`~txbroker.broker.scheduler.REQUEST`, in which a small answer is contained; larger answers count beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from journal.constants import KIB
from txbroker.broker.scheduler import REQUEST

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.session import Session

SMALL: Final = REQUEST
"""Answers up to here are counted with their requests."""

UNCOUNTED: Final = 4 * KIB
"""What is put on an account in one go: of each small request it would be 4,000 instructions, 2 to 5 % of it."""


class Accounts:
    """Counts for sessions, in ``session.held``, and for all of them together, in ``held``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._when_forced = engine.when_forced
        self.held = 0

    def put(self, session: Session, answer: bytes) -> None:
        """Have the session given its answer once everything accepted so far is forced and shown; now, if it is."""
        if len(answer) > SMALL:
            self.until_forced(session, len(answer))
        self._when_forced(session.deliver, answer)

    def charge(self, session: Session, size: int) -> None:
        """Count so much until everything is forced that is accepted by now. What a large commit keeps is not meant."""
        engine = self._engine
        if engine.forced_lsn + 1 != engine.next_lsn:
            session.held += size
            self.held += size
            engine.passing = True
            self._when_forced(self._repay, (session, size))
            engine.passing = False

    def until_forced(self, session: Session, size: int) -> None:
        """Count so much until an answer that is given now goes out."""
        self.add(session, size)
        self._when_forced(self._repay, (session, size))

    def add(self, session: Session, size: int) -> None:
        """Count so much more, or less, for what is counted elsewhere."""
        session.held += size
        self.held += size

    def _repay(self, account: tuple[Session, int]) -> None:
        session, size = account
        session.held -= size
        self.held -= size
