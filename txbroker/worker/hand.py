"""The calls of the handler, as far as they are the same in every client."""

from __future__ import annotations

import inspect
from typing import Any

from journal.transaction_states import State
from txbroker import errors
from txbroker.worker.face import Attempt
from txbroker.worker.options import Job


class Caller:
    """Calls the handler, and finishes messages with its transaction. ``connection`` is the client's connection."""

    awaits = True
    """Whether the handler may return something to await."""

    def __init__(self, connection: Any, job: Job) -> None:
        self.connection = connection
        self.job = job
        self.database: Any = None
        """The database connection, once there is one."""

    async def ended(self, result: Any) -> Any:
        """Return the result of a call, awaited if it is to be."""
        return await result if inspect.isawaitable(result) else result

    async def within(self, awaitable: Any, seconds: float | None) -> None:  # noqa: ARG002
        """Wait for a call of the handler; cancel it after so many seconds, and raise HandlerTimedOut."""
        await awaitable

    async def call(self, attempt: Attempt, *more: Any) -> None:
        """Call the handler with the messages, and what belongs to the transaction."""
        what = attempt.messages if self.job.options.batch > 1 else attempt.messages[0]
        if not self.awaits:
            attempt.called()
        try:
            found = self.job.handler(what, *more)
            if self.awaits and inspect.isawaitable(found):
                await self.within(found, self.job.options.handler_timeout)
        except BaseException as error:
            attempt.returned()
            attempt.raised = error
            raise
        attempt.returned()
        if not self.awaits:
            _refuse_awaitable(found)

    async def call_within(self, attempt: Attempt, tx: Any, *more: Any) -> None:
        """Call the handler with a transaction, and finish the messages with it."""
        await self.call(attempt, tx, *more)
        await self.ended(tx.done(attempt.messages, attempt.consumer))
        attempt.check()

    async def outcome(self, attempt: Attempt) -> bool:
        """Ask how the transaction ended; see :class:`txbroker.worker.face.Hand`."""
        assert attempt.ask is not None
        return await self.ended(attempt.ask()) in (None, State.COMMITTED)

    async def renew(self) -> None:
        """Close the database connection."""
        database, self.database = self.database, None
        if database is not None:
            try:
                await self.ended(database.close())
            except Exception:  # noqa: BLE001 - it was closed because it does not work
                return


def _refuse_awaitable(found: object) -> None:
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise errors.Misuse(
            "the handler returned something to await, which the blocking client does not do: use that for asyncio "
            "(txbroker.client.asyncio), or a function that returns when the work is done"
        )
