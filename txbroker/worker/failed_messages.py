"""Messages whose handler failed: they are reported to the group, which has them tried again, or gives them up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from txbroker import errors
from txbroker.client.consumer.retries import Said, retry
from txbroker.client.core.results import Message
from txbroker.worker.face import Face
from txbroker.worker.failures import described, place_of
from txbroker.worker.pauses import FIRST_PAUSE, longer
from txbroker.worker.schedule import Schedule, Work

log = logging.getLogger("txbroker.worker")

WHILE_OTHERS: Final = 0.5
"""Seconds until a message is handled again that has to wait for others."""

_LATER = (errors.StorageUnavailable, errors.OutcomeUnknown)
"""There was no answer in time: it is said again."""
_AFTER_OTHERS = (errors.OffsetPending, errors.LimitExceeded)
"""A transaction holds the offset; it is too far beyond the first unfinished one; or too many wait (``max_parked``)."""


class Failing(Protocol):
    """The worker whose messages failed."""

    async def paused(self, seconds: float) -> bool:
        """Wait; return whether the worker is to stop."""

    def lose(self, messages: list[Message], error: Exception) -> None:
        """Note that others have the partition of these messages."""

    def fail(self, error: BaseException) -> None:
        """End the worker with an error."""


class FailedMessages:
    """Reports failed messages. No later message of their lane is handled before they come again: those that were handed
    out already go back to the consumer, which leaves them out until then.
    """

    def __init__(self, face: Face, worker: Failing, schedule: Schedule) -> None:
        self.reported = 0
        """How many messages may come again because they were reported."""
        self._face = face
        self._worker = worker
        self._schedule = schedule

    async def report(self, work: Work, message: Message, error: Exception, later: Sequence[Message]) -> None:
        """Have the group note that a message failed. ``later`` are those of the work that are not handled before it."""
        pause = FIRST_PAUSE
        why, consumer = described(error), self._face.consumer()
        while True:
            try:
                await self._face.run(retry(consumer, message, Said.again(None, why), None))
            except _LATER as refusal:
                if pause == FIRST_PAUSE:
                    log.warning("%s is reported as failed later: %s", place_of(message), described(refusal))
                if await self._worker.paused(pause):
                    return  # it comes again all the same: it is unfinished
                pause = longer(pause)
            except _AFTER_OTHERS as refusal:
                await self.postpone(work, [message, *later], refusal)
                return
            except errors.AlreadyFinished as refusal:
                log.info("%s", refusal)
                break
            except (errors.GenerationFenced, errors.WrongValue) as refusal:
                self._worker.lose([message], refusal)
                return
            except Exception as refusal:  # noqa: BLE001 - the worker ends with it
                self._worker.fail(refusal)
                return
            else:
                break
        await self._send_back(work, message, later)

    async def postpone(self, work: Work, messages: Sequence[Message], why: Exception) -> None:
        """Have messages handled again after a while, without an attempt: this hand is needed for what they wait for."""
        log.info("%s is handled again later: %s", place_of(messages[0]), described(why))
        await self._face.tell_begun()  # without these: until then they are handled by nobody
        if not await self._worker.paused(WHILE_OTHERS):
            await self._send_back(work, messages[0], messages, read_anew=True)

    async def _send_back(
        self, work: Work, message: Message, back: Sequence[Message], read_anew: bool = False
    ) -> None:
        """Give these messages back to the consumer, and what is behind them and the message, in one step in which the
        consumer hands out nothing: a message leaves it, and gets into the schedule, under the lock.
        """
        consumer = self._face.consumer()

        async def give_back() -> None:
            with self._face.lock:
                self.reported += 1
                behind: list[Message] = []
                for lane in {self._schedule.lane(each) for each in (message, *back)} - {()}:
                    behind += self._schedule.withdraw(lane, work.generation)
                consumer.put_back([*back, *behind], read_anew)

        await self._face.run(give_back())
