"""The reading of a transaction's staged file before its commit is judged, on another thread: a GiB takes a second.

The session that asks is held meanwhile, so that none of its requests overtakes the commit; all others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from txbroker.broker.fetches.fetch_attempt import unreadable
from txbroker.broker.fetches.fetches import RunBlocking
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.session import Session
from txbroker.broker.transactions.transactions import Transacting
from txbroker.errors import CorruptData, TxBrokerError
from txbroker.wire.codec import encode
from txbroker.wire.messages import Commit
from txbroker.wire.refusals import refusal

if TYPE_CHECKING:
    from journal.transactions.staging import Proof, Staged

CarryOut = Callable[[Session, Commit, memoryview], None]

log: Final = Logger()


class Proving:
    """Reads staged files. ``carry_out`` takes the commit afterwards, also that of a session that has ended."""

    def __init__(
        self,
        transacting: Transacting,
        run_blocking: RunBlocking,
        answers: Accounts,
        carry_out: CarryOut,
    ) -> None:
        self._transacting = transacting
        self._run_blocking = run_blocking
        self._answers = answers
        self._carry_out = carry_out

    def takes(self, session: Session, command: Any, data: memoryview) -> bool:
        """Return whether a commit has to wait for its staged file; if so, begin to read it."""
        known = self._transacting.live_of(session, command)
        if known is None:
            return False
        proof = self._transacting.staging.proof(known.number, known.staged)
        if proof is None:
            return False
        session.hold(True)
        self._run_blocking(
            proof.run,
            lambda _: self._proven(session, command, data, known.staged, proof),
            partial(self._failed, session, command, data),
        )
        return True

    def _proven(
        self, session: Session, command: Commit, data: memoryview, staged: Staged, proof: Proof
    ) -> None:
        staged.proven = max(staged.proven, proof.through)
        self._go_on(session, command, data)

    def _go_on(self, session: Session, command: Commit, data: memoryview) -> None:
        session.hold(False)
        self._carry_out(session, command, data)

    def _failed(self, session: Session, command: Commit, data: memoryview, error: BaseException) -> None:
        """Refuse the commit: nothing was decided. If the transaction has ended and its file is gone, the commit finds
        that.
        """
        if self._transacting.live_of(session, command) is None:
            self._go_on(session, command, data)
            return
        session.hold(False)
        if not isinstance(error, CorruptData):
            log.error("Commit: reading failed: {error}", error=error)
        told = error if isinstance(error, TxBrokerError) else unreadable(error)
        self._answers.put(session, encode(refusal(command.correlation, told)))
