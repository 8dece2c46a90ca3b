"""Topics whose partitions have been asked for: one question for each, however many callers wait for the answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from txbroker import errors
from txbroker.client.core.promise import Errand, Promise
from txbroker.client.core.waits import Waits

R = TypeVar("R")


class Question(Generic[R]):
    """One question and the callers that wait for its answer. They resume in their order, some at a time.

    ``ask`` is a coroutine function; what it raises is the answer for all callers. It goes on without callers that give
    up. ``over`` is called with the question when the answer is here and no caller waits for it any more. Until then new
    callers wait here too, so that they do not overtake the others.
    """

    def __init__(
        self,
        waits: Waits,
        ask: Callable[[], Coroutine[Promise[Any], None, R]],
        over: Callable[[Question[R]], object],
    ) -> None:
        self.answer: R | None = None
        self.error: errors.TxBrokerError | None = None
        self._ask = ask
        self._over = over
        self._line = waits.line(lambda: self.is_answered)
        self._errand: Errand | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the answer, or a refusal, is here."""
        return self.answer is not None or self.error is not None

    async def answered(self) -> R:
        """Wait for the answer and return it; raises the error of the question."""
        turn = self._line.turn()
        try:
            turn.join()
            self._go_on()
            await turn
            if self.error is not None:
                raise self.error.with_traceback(None)
            return self.answer  # type: ignore[return-value]  # the turn comes with it
        finally:
            turn.leave()
            self._look()

    def mend(self) -> None:
        """Repair after an interrupt: ask again if the question was interrupted, and let waiting callers resume."""
        self._line.mend()
        if not self.is_answered:
            self._go_on()
        self._look()

    def _go_on(self) -> None:
        if self._errand is None or (self._errand.done and not self.is_answered):
            self._errand = Errand(self._find_out())
        else:
            self._errand.wake()

    async def _find_out(self) -> None:
        try:
            self.answer = await self._ask()
        except errors.TxBrokerError as error:
            self.error = error
        self._line.move()

    def _look(self) -> None:
        if self.is_answered and self._line.is_free:
            self._over(self)
