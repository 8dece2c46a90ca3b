"""Topics whose partitions have been asked for: one question for each, however many wait for the answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from txbroker import errors
from txbroker.client.core.promise import Errand, Promise
from txbroker.client.core.waits import Waits

R = TypeVar("R")


class Question(Generic[R]):
    """One question and those who wait for its answer, who go on in their order, some at a time.

    ``ask`` is a coroutine's function; what it raises is the answer for all. It goes on without those who give up.
    ``over`` is called with it when the answer is here and nobody waits for it any more: until then whoever comes is to
    wait here too, for he would overtake the others.
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
        """Wait for the answer and return it; raises what the question failed with."""
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
        """Something was interrupted: ask again if that was this, and have those who wait go on."""
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
