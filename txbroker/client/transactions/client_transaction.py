"""The common part of all clients' transactions, and the check that no block of one is inside another block.

An inner block would be committed by itself although it looks like a part of the outer one. The check is by the task or
thread that is in the block, not by the connection: tasks and threads may each have a transaction on it.
"""

from __future__ import annotations

import gc
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any
from weakref import ref

from journal.scheduled_id import ScheduledId
from journal.transaction_states import TransactionNumber
from txbroker import errors
from txbroker.client.consumer.retries import Pause, Retries, Said, retry_in
from txbroker.client.core.client_method import part_method
from txbroker.client.core.positions import Consumed, Finishes, add_finished, add_positions
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message, Run
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.queues.publishing import Publishes
from txbroker.client.queues.queue_messages import acknowledge_with
from txbroker.client.transactions.decision import Stage as Stage
from txbroker.client.transactions.transaction import Transaction


class ClientTransaction(Publishes):
    """The common part of a transaction in every client."""

    _core: Transaction

    @property
    def number(self) -> TransactionNumber | None:
        """The number of the transaction, once something was sent."""
        return self._core.number

    @property
    def stage(self) -> Stage:
        """How far the transaction is."""
        return self._core.stage

    @property
    def runs(self) -> list[Run]:
        """Where the messages of each partition begin; known after the commit."""
        return self._core.runs

    @property
    def scheduled(self) -> list[ScheduledId]:
        """The ids of the messages that it has scheduled, in the order of their sends; known after the commit."""
        return self._core.scheduled

    @part_method
    def commit_offsets(self, consumer: Consumed) -> Coroutine[Promise[Any], None, None]:
        """Add the positions after what ``consumer`` has handed out so far."""
        return add_positions(self._core, consumer)

    @part_method
    async def done(self, what: Message | Sequence[Message], consumer: Finishes | None = None) -> None:
        """Finish a message, or each of a list, with the transaction, and no others; it waits for nothing but the
        transaction's beginning.

        They are finished for the group of ``consumer``; without it, for that of the consumer of this connection that
        has handed them out. One transaction either moves a group's position in a partition (:meth:`commit_offsets`,
        ``receive``) or finishes single messages there. Raises GenerationFenced if the partition was another's since,
        Misuse if no consumer is named and none or several may be meant, WrongType, WrongValue.
        """
        await add_finished(self._core, self._readers, what, consumer)

    @part_method
    async def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge a message of a queue, or each of a list, with the transaction; it waits for nothing but the
        transaction's beginning.

        If the transaction is rolled back the message is returned to its queue, with an attempt counted. The commit, or
        the prepare, raises DeliveryLost if the message was given to others since. Raises WrongType, and Misuse for a
        message of a topic.
        """
        await acknowledge_with(self._core, self._core.core, message)

    @part_method
    async def retry(
        self, message: Message, after: Pause = None, why: str = "", consumer: Retries | None = None
    ) -> None:
        """Have a message tried again if the transaction commits: it comes again ``after`` a pause, and is not
        finished.

        ``after`` is in seconds or a ``timedelta``, from when the broker learns of it; None is the broker's pause, 10 s.
        ``why`` is kept with the message. It is tried again for the group of ``consumer``; without it for the one that
        this transaction has received it for, else as in :meth:`done`. Rolled back, the message is as before. Raises as
        :meth:`done`; the commit raises AlreadyFinished and TooManyParked.
        """
        await retry_in(self._core, self._readers(message), message, Said.again(after, why), consumer)

    @part_method
    async def dead_letter(self, message: Message, why: str = "", consumer: Retries | None = None) -> None:
        """Give up a message for its group if the transaction commits: it goes to the topic of dead letters.

        Which group is meant is as in :meth:`retry`. The broker moves it soon after the commit. Raises InvalidSetting
        for a message of a topic of dead letters, else as :meth:`retry`.
        """
        await retry_in(self._core, self._readers(message), message, Said.given_up(why), consumer)

    @part_method
    def commit(self) -> Coroutine[Promise[Any], None, None]:
        """Commit, in one phase or after :meth:`prepare`; it ends once the messages are forced and visible.

        Raises TransactionRolledBack if the commit did not happen and never will, and OutcomeUnknown (with the
        number) if the client could not find out: calling the method again asks again, as long as the connection is not
        given up or closed. After that ``outcome(number)`` of a new connection finds out.
        """
        return self._core.commit()

    @part_method
    def rollback(self) -> Coroutine[Promise[Any], None, None]:
        """Roll back. May also be called after a failed commit."""
        return self._core.rollback()

    @part_method
    def outside(self) -> Coroutine[Promise[Any], None, list[tuple[PartitionQueue, bytes]] | None]:
        """Return its messages, if it has nothing else and can be committed elsewhere. For ``atomic``."""
        return self._core.outside()

    _is_inside = False
    _who: object = None
    _where: object = None

    def _enter_block(self, who: object, frame: FrameType | None = None) -> None:
        """Begin a ``with`` block. Raises Misuse inside another one of the same connection.

        ``who`` is the task or thread. ``frame`` is the frame of the ``with``, if it is known. A ``with`` cannot be
        inside itself. If it seems to be, an exception of a signal's handler left the earlier one before its end could
        begin; that one is rolled back.
        """
        where = None if frame is None else (frame, frame.f_lasti)
        if any(self._is_within(block, who) for block in _inside()):
            gc.collect()  # one that was left so may be held by its own frame only
        for block in _inside():
            if not self._is_within(block, who):
                continue
            if where is not None and block._where == where:
                block._leave_block()
                block._abandon()
                continue
            raise errors.Misuse(
                "a transaction of this connection is open around this block already, and the two would be committed "
                "one by one: use the outer block's transaction, or another connection for what is to be committed "
                "whatever becomes of it; nothing was begun"
            )
        try:
            self._is_inside, self._who, self._where = True, who, where
            _keep([*_inside(), self])
        except BaseException:
            self._leave_block()
            raise

    def _readers(self, message: Any) -> list[Any]:
        """Return the consumers that may have handed out a message: those with its generation, else those that have
        handed out others of its partition.
        """
        if not isinstance(message, Message):
            return []
        place = message.topic, message.partition
        read = {each: core for each, core in self._core.core.consumers.items() if core.has_handed_out(*place)}
        exact = [each for each, core in read.items() if core.has_handed_out(*place, message.generation)]
        return exact or list(read)

    def _is_within(self, block: ClientTransaction, who: object) -> bool:
        return block._who == who and block._core.core is self._core.core

    def _leave_block(self) -> None:
        """End a ``with`` block, with or without an error."""
        self._is_inside, self._where = False, None
        _keep(_inside())

    def _abandon(self) -> None:
        """Roll it back without waiting; each client does this in its own way."""
        raise NotImplementedError


_blocks: ContextVar[tuple[ref[ClientTransaction], ...]] = ContextVar("blocks of transactions", default=())
"""The blocks around the running code, outermost first. A task begins with a copy, so it knows its own blocks.

A ``with`` that was interrupted at its beginning is not left: nothing holds the transaction then, and it is removed
here.
"""


def _inside() -> list[ClientTransaction]:
    return [block for each in _blocks.get() if (block := each()) is not None and block._is_inside]


def _keep(blocks: list[ClientTransaction]) -> None:
    _blocks.set(tuple(ref(block) for block in blocks))
