"""Answers that take long, made in steps while the session's turn lasts, with reads of the disk on another thread.

An answer is made by a generator. It yields None where others may have their turn, work for the reader pool, whose
result it gets, or what it waits for; it returns the encoded answer, or None if another one is made later.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from twisted.logger import Logger

from journal.log.read_plan import GoesOn, always
from txbroker.broker.fetches.fetch_attempt import unreadable
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.session import Session, SessionState
from txbroker.errors import LimitExceeded, TxBrokerError
from txbroker.wire.messages import Request

MOST_AT_ONCE: Final = 16
"""How many answers of one session may be made at once: each holds its question and the finished part of the answer."""

Work = Callable[[], Any]


class Until(enum.Enum):
    """What an answer waits for."""

    IDLE = "the engine may be idle"
    FORCED = "what has been accepted is forced"


Steps = Generator[Work | Until | None, Any, bytes | None]
RunBlocking = Callable[[Work, Callable[[Any], None], Callable[[BaseException], None]], None]


class _Making:
    """An answer that is being made; ``result`` goes into the next step, or ``error`` is raised there."""

    __slots__ = ("error", "request", "result", "session", "steps")

    def __init__(self, session: Session, request: Request, steps: Steps) -> None:
        self.session = session
        self.request = request
        self.steps = steps
        self.result: Any = None
        self.error: Exception | None = None

    def step(self) -> Work | Until | None:
        """Take the next step."""
        result, self.result = self.result, None
        error, self.error = self.error, None
        return self.steps.send(result) if error is None else self.steps.throw(error)


class Stepwise:
    """Makes such answers. ``goes_on`` returns whether the session's turn lasts; ``when_forced`` calls once everything
    accepted so far is; ``broke`` is called for our own faults, ``refused`` returns the answer for an error.
    """

    log = Logger()

    def __init__(
        self,
        run_blocking: RunBlocking,
        answers: Accounts,
        when_forced: Callable[[Callable[[Any], None], Any], None],
        broke: Callable[[Session, str, Exception], None],
        refused: Callable[[Session, Any, TxBrokerError], bytes],
    ) -> None:
        self._run_blocking = run_blocking
        self._answers = answers
        self._when_forced = when_forced
        self._broke = broke
        self._refused = refused
        self._waiting: list[_Making] = []
        self.goes_on: GoesOn = always

    def answer(self, session: Session, request: Request, steps: Steps) -> None:
        """Make the answer to a request; it is delivered once all that was accepted until it was made is forced.

        Raises :class:`LimitExceeded` if too many are being made for the session.
        """
        if session.making >= MOST_AT_ONCE:
            raise LimitExceeded(
                f"{session.making} answers of this session are being made, the limit is {MOST_AT_ONCE}; wait for one "
                "of them"
            )
        session.making += 1
        self._go_on(_Making(session, request, steps))

    def _go_on(self, making: _Making) -> None:
        session, failed = making.session, making.error
        try:
            while session.state is not SessionState.CLOSED:
                work = making.step()
                if work is Until.IDLE:
                    self._waiting.append(making)
                    return
                if work is Until.FORCED:
                    self._when_forced(self._go_on, making)
                    return
                if work is not None:
                    self._run_blocking(work, partial(self._done, making), partial(self._failed, making))
                    return
                if session.wake is not None and not self.goes_on():
                    self._later(making)
                    return
        except StopIteration as end:
            if end.value is not None:
                self._answers.put(session, end.value)
        except Exception as error:  # noqa: BLE001  (whatever it is, it costs one connection)
            if error is failed:
                self._refuse(making, error)
            elif isinstance(error, TxBrokerError):
                self._answers.put(session, self._refused(session, making.request, error))
            else:
                self._broke(session, type(making.request).__name__, error)
        session.making -= 1

    def idle(self) -> None:
        """Go on with the answers that wait until the engine is idle."""
        waiting, self._waiting = self._waiting, []
        for making in waiting:
            self._go_on(making)

    def _later(self, making: _Making) -> None:
        making.session.due[making] = self._go_on
        if making.session.wake is not None:
            making.session.wake()

    def _done(self, making: _Making, result: Any) -> None:
        making.result = result
        if making.session.wake is None:
            self._go_on(making)
        else:
            self._later(making)

    def _failed(self, making: _Making, error: BaseException) -> None:
        """Have the steps go on with what failed on the disk or in the pool."""
        making.error = (
            error if isinstance(error, Exception) else RuntimeError(f"reading was ended: {error!r}")
        )
        self._done(making, None)

    def _refuse(self, making: _Making, error: Exception) -> None:
        """Refuse this request, because the disk or the pool failed; the session continues."""
        kind = type(making.request).__name__
        self.log.error("{command}: reading failed: {error}", command=kind, error=error)
        told = error if isinstance(error, TxBrokerError) else unreadable(error)
        self._answers.put(making.session, self._refused(making.session, making.request, told))
