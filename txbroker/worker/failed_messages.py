"""Messages whose handler failed: they are reported to the group, which has them tried again, or gives them up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.retries import Said, parking_of
from txbroker.client.core.results import Message
from txbroker.worker.face import Face
from txbroker.worker.failures import described, place_of
from txbroker.worker.schedule import Schedule, Work

log = logging.getLogger("txbroker.worker")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries."""
WHILE_TOO_MANY: Final = 0.5
"""Seconds until a message is handled again that cannot wait because ``max_parked`` others do."""

_LATER = (errors.StorageUnavailable, errors.OutcomeUnknown, errors.OffsetPending, errors.LimitExceeded)
"""Errors for now: no answer, a transaction that holds the offset, and too many that wait already (``max_parked``)."""


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
                await self._face.run(retry(consumer, message, work.generation, why))
            except _LATER as refusal:
                if pause == FIRST_PAUSE:
                    log.warning("%s is reported as failed later: %s", place_of(message), described(refusal))
                is_too_many = isinstance(refusal, errors.TooManyParked)
                if await self._worker.paused(WHILE_TOO_MANY if is_too_many else pause):
                    return  # it comes again all the same: it is unfinished
                if is_too_many:
                    # This hand is needed for those that wait. It is handled again, and that attempt is not counted.
                    await self._send_back(message, work.generation, [message, *later])
                    return
                pause = min(LONGEST_PAUSE, pause * 2)
            except errors.AlreadyFinished as refusal:
                log.info("%s", refusal)
                return
            except (errors.GenerationFenced, errors.WrongValue) as refusal:
                self._worker.lose([message], refusal)
                return
            except Exception as refusal:  # noqa: BLE001 - the worker ends with it
                self._worker.fail(refusal)
                return
            else:
                break
        await self._send_back(message, work.generation, later)

    async def _send_back(self, message: Message, generation: int, later: Sequence[Message]) -> None:
        """Give back ``later``, and what is behind the message. A message leaves the consumer and gets into the schedule
        in one step, under the lock, and the consumer hands out no more of that lane.
        """
        consumer = self._face.consumer()
        if later:
            await self._face.run(put_back(consumer, later))
        with self._face.lock:
            self.reported += 1
            lane = self._schedule.lane(message)
            behind = self._schedule.withdraw(lane, generation) if lane else []
        if behind:
            await self._face.run(put_back(consumer, behind))


async def retry(consumer: ConsumerCore, message: Message, generation: int, why: str) -> None:
    """Have a message tried again as the rules of its group say; raises GenerationFenced if its partition was lost since
    it was handed out, and as :meth:`~txbroker.client.consumer.client_consumer.ClientConsumer.retry`.
    """
    parking = parking_of(consumer, message, Said.again(None, why))
    if any(each.generation != generation for each in parking.settled):
        raise errors.GenerationFenced(
            "the partition was another consumer's since the message was handed out; nothing was sent"
        )
    await parking.carry_out()


async def put_back(consumer: ConsumerCore, messages: Sequence[Message]) -> None:
    """Give messages back to a consumer, which hands them out again when nothing that is tried again is before them."""
    consumer.put_back(messages)
