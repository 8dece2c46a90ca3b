"""The stage of a transaction, and its decision, which goes on whether or not a caller waits for it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine
from typing import Any

from journal.transaction_states import State, TransactionNumber
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise, Task, ended, start
from txbroker.wire.messages import AskOutcome, Outcome


class Stage(enum.Enum):
    """The stage of a transaction, as far as its client knows."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    DECIDING = "ended, and how is not known yet"


class Decision:
    """The prepare or commit of one transaction that is under way. ``given_up`` is called when no caller waits for it,
    or an interrupt has ended it: its request may have been sent.

    ``verdict`` is kept: a later call raises again that it was rolled back.
    """

    def __init__(self, given_up: Callable[[], object]) -> None:
        self.verdict: errors.TransactionRolledBack | None = None
        self._given_up = given_up
        self._deciding: tuple[Stage, Task[None]] | None = None

    @property
    def under_way(self) -> Stage | None:
        """The stage that is being decided, or was decided without a caller having learnt of it."""
        return None if self._deciding is None else self._deciding[0]

    async def made(self, goal: Stage, decide: Callable[[], Coroutine[Promise[Any], None, None]]) -> None:
        """Wait for the decision, begun with ``decide`` unless it is under way; raises what it raises."""
        try:
            if self._deciding is not None and self._deciding[0] is not goal:
                await ended(self._deciding[1])
                self._deciding = None
            if self._deciding is None:
                self._deciding = (goal, start(decide()))
            else:
                self._deciding[1].wake()  # an interrupt may have kept it from resuming
            task = self._deciding[1]
            await ended(task)
            self._deciding = None
            if task.error is not None:
                if isinstance(task.error, errors.TransactionRolledBack):
                    self.verdict = task.error
                task.result()
        except errors.TxBrokerError:
            raise
        except BaseException:
            self._given_up()
            raise


async def decided(core: Core, number: TransactionNumber) -> Outcome:
    """Ask how a transaction ended, until it is prepared or decided; raises if that is not known within the timeout."""
    deadline = core.clock() + core.options.timeout
    pause = 0.02
    while True:
        request = AskOutcome(core.correlation(), *number)
        outcome = await core.request(request, Outcome, timeout=max(0.0, deadline - core.clock()))
        if outcome.state not in (State.ACTIVE, State.ROLLBACK_ONLY):
            return outcome
        if core.clock() + pause >= deadline:
            raise errors.RequestTimedOut("the broker has not noticed yet that the old connection died")
        await core.waits.sleep(pause)
        pause = min(1.0, pause * 2)


def way_to_ask(core: Core, number: TransactionNumber | None) -> str:
    """Return what finds out how a transaction ended. A connection that is given up for good asks nothing any more."""
    if core.fatal is None:
        return f"ask outcome({str(number)!r}) later; the same call made again asks too, and decides nothing twice"
    if isinstance(core.fatal, errors.BrokerReplaced):
        return "no broker with these data remembers it: look at what they have before the work is done again"
    return (
        f"this connection is given up and cannot ask: ask outcome({str(number)!r}) of a new connection, and do not do "
        "the work again before that has answered"
    )


def reason_of(outcome: Outcome) -> str:
    """Return why a transaction was rolled back, and by whom, in parentheses."""
    cause = outcome.cause.name.lower().replace("_", " ") if outcome.cause else "for a reason not kept"
    return f"({cause}{' by ' + outcome.by if outcome.by else ''}{': ' + outcome.why if outcome.why else ''})"
