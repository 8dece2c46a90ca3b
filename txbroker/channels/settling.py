"""Acknowledgements and returns of a channel, gathered over a turn and said to the broker in one request a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Retried, Settled, finishing
from journal.records.queue_entries import QUEUE_GROUP
from txbroker.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.faces import ChannelFace
from txbroker.channels.refusals import amqp_error
from txbroker.channels.unacknowledged import Run, Unacknowledged
from txbroker.wire.messages import CommitOffsets, GiveBack, Refused

RETURNED_AT_ONCE: Final = 512
"""Most messages that are returned by one request: an attempt is counted for each, 3 ms in all."""
ELSEWHERE: Final = 0
"""The partition of deliveries that another session has taken over; no queue has it."""
REJECTED: Final = "it was rejected"
_LOST: Final = frozenset({"DeliveryLost", "InvalidSetting", "UnknownQueue"})
"""Refusals of acknowledgements of what is not there any more: the queue was deleted."""


class Settling:
    """What a channel's client says of deliveries. ``deliveries`` are those of the channel."""

    def __init__(self, channel: ChannelFace) -> None:
        self._channel = channel
        self.deliveries = Unacknowledged()
        self._finished: dict[int, OffsetSet] = {}
        self._returned: deque[tuple[int, bool, int, int]] = deque()
        """(partition, whether it was rejected, first, end) of what is to be returned yet."""
        self._is_returning = False
        self.on_settled: Callable[[Sequence[Run]], object] = _done
        """Called with deliveries that were acknowledged or returned."""
        self.leases: dict[int, bytes] = {}
        """The leases of deliveries that have one, by tag."""
        self.handlers: dict[type, Any] = {
            BasicAck: self.ack,
            BasicNack: self.nack,
            BasicReject: self.reject,
            BasicRecover: self.recover,
            BasicRecoverAsync: self.recover,
        }

    # -- what the client says ----------------------------------------------------------------------

    def ack(self, method: BasicAck) -> None:
        """Acknowledge."""
        runs = self._named(method.delivery_tag, method.multiple)
        transaction = self._channel.transaction
        if transaction is not None:
            transaction.acknowledged += runs
            return
        for run in runs:
            self.finish(run.partition, run.offset, run.offset + run.count)
        self.on_settled(runs)

    def finish(self, partition: int, first: int, end: int) -> None:
        """Have messages of a queue finished at the end of the turn."""
        if partition == ELSEWHERE:
            return
        finished = self._finished.get(partition)
        if finished is None:
            finished = self._finished[partition] = OffsetSet()
            self._channel.is_dirty()
        finished.add_range(first, end)

    def nack(self, method: BasicNack) -> None:
        """Return, or reject."""
        runs = self._named(method.delivery_tag, method.multiple)
        self._put_back(runs, method.requeue)

    def reject(self, method: BasicReject) -> None:
        """Return one, or reject it."""
        self._put_back(self._named(method.delivery_tag, False), method.requeue)

    def recover(self, method: BasicRecover | BasicRecoverAsync) -> None:
        """Return all."""
        if not method.requeue:
            raise AmqpError(Reply.NOT_IMPLEMENTED, "basic.recover with requeue=false")
        runs = self.deliveries.take_all()
        self._end_leases(runs)
        if isinstance(method, BasicRecover):
            self._channel.reply(BasicRecoverOk())
        self._channel.replies.then(lambda: self._return(runs, requeue=True))  # also in a transaction

    def taken_over(self, tag: int) -> None:
        """Note that another session has taken a delivery over: whatever is said of it here changes nothing."""
        del self.leases[tag]
        run = self.deliveries.take(tag)
        if run is not None:
            self.deliveries.put(Run(tag, 1, ELSEWHERE, 0, run.consumer))

    def those_of(self, partition: int, offsets: OffsetSet) -> OffsetSet:
        """Return which of these messages of a queue are deliveries of the channel, acknowledged or not in a transaction
        that is not committed.
        """
        found, transaction = OffsetSet(), self._channel.transaction
        for run in (*self.deliveries, *(transaction.settled if transaction else ())):
            if run.partition == partition:
                found.add_range(run.offset, run.offset + run.count)
        return found.shared(offsets)

    def _named(self, tag: int, multiple: bool) -> list[Run]:
        """Take out the deliveries that are meant; raises AmqpError, PRECONDITION_FAILED, if there is none."""
        found: list[Run] | None = None
        if multiple and not tag:
            found = self.deliveries.take_all()
        elif multiple and tag in self.deliveries:
            found = self.deliveries.take_up_to(tag)
        elif not multiple and (run := self.deliveries.take(tag)) is not None:
            found = [run]
        if found is not None:
            self._end_leases(found)
            return found
        raise AmqpError(Reply.PRECONDITION_FAILED, f"unknown delivery tag {tag}")

    def _put_back(self, runs: list[Run], requeue: bool) -> None:
        transaction = self._channel.transaction
        if transaction is not None:
            (transaction.returned if requeue else transaction.rejected).extend(runs)
            return
        self._return(runs, requeue)

    def _return(self, runs: list[Run], requeue: bool) -> None:
        if requeue:
            self.give_back(runs)
        else:
            for run in runs:
                self.reject_run(run)
        self.on_settled(runs)

    def _end_leases(self, runs: list[Run]) -> None:
        for run in runs if self.leases else ():
            for tag in range(run.tag, run.tag + run.count):
                if (lease := self.leases.pop(tag, None)) is not None:
                    self._channel.directory.end_lease(lease)

    # -- what the broker is told -------------------------------------------------------------------

    def flush(self) -> None:
        """Say what was acknowledged since the last time."""
        finished, self._finished = self._finished, {}
        for partition, offsets in finished.items():
            for each in finishing(partition, offsets):
                self._settle(each)

    def _settle(self, settled: Settled) -> None:
        self._channel.requests.ask(
            CommitOffsets, QUEUE_GROUP, [], settled=[settled],
            then=_done, refused=partial(self._refused, settled),
        )  # fmt: skip

    def _refused(self, settled: Settled, refused: Refused) -> None:
        """End the channel, and have the messages delivered again: its client believes that they are settled."""
        if refused.error in _LOST:
            return
        offsets = decode_offsets(settled.finished, settled.base)
        for one in settled.retried:
            offsets.add(one.offset)
        self._channel.fail(amqp_error(refused, self._channel.requests.host))
        self._give_back(settled.partition, offsets, counted=False)

    def reject_run(self, run: Run) -> None:
        """Have messages go to the dead letters: not all at once, if there are many."""
        self._put_off([run], is_rejected=True)

    def give_back(self, runs: Iterable[Run]) -> None:
        """Have messages delivered again, with an attempt counted for each: not all at once, if there are many."""
        self._put_off(runs, is_rejected=False)

    def _put_off(self, runs: Iterable[Run], is_rejected: bool) -> None:
        for run in runs:
            if run.partition != ELSEWHERE:
                self._returned.append((run.partition, is_rejected, run.offset, run.offset + run.count))
        if self._returned and not self._is_returning:
            self._return_some()

    def leave(self, partition: int, first: int, end: int) -> None:
        """Have messages delivered to others that were taken, and not delivered."""
        offsets = OffsetSet()
        offsets.add_range(first, end)
        self._give_back(partition, offsets, counted=False)

    def _return_some(self) -> None:
        """Return or reject the next, those of one queue; the others in later turns."""
        self._is_returning = False
        partition, is_rejected, *_ = self._returned[0]
        offsets, left = OffsetSet(), RETURNED_AT_ONCE
        while left and self._returned:
            of, so, first, end = self._returned[0]
            middle = min(end, first + left)
            if (of, so) != (partition, is_rejected) or not _has_room(offsets, first, middle):
                break
            self._returned.popleft()
            offsets.add_range(first, middle)
            left -= middle - first
            if middle < end:
                self._returned.appendleft((partition, is_rejected, middle, end))
        if is_rejected:
            self._reject(partition, offsets)
        else:
            self._give_back(partition, offsets, counted=True)
        if self._returned:
            self._is_returning = True
            self._channel.connection.call_later(0, self._return_some)

    def _reject(self, partition: int, offsets: OffsetSet) -> None:
        attempts = self._channel.directory.attempts
        retried = [
            Retried(offset, attempts(partition, offset), 0, REJECTED, dead=True)
            for first, end in offsets.runs()
            for offset in range(first, end)
        ]
        self._settle(Settled(partition, 0, offsets.first, retried=retried))

    def _give_back(self, partition: int, offsets: OffsetSet, *, counted: bool) -> None:
        base = offsets.first
        self._channel.requests.tell(GiveBack, partition, encode_offsets(offsets, base), base, counted=counted)

    def close(self) -> None:
        """Return everything: the channel has ended."""
        for lease in self.leases.values():
            self._channel.directory.end_lease(lease)
        self.leases.clear()
        transaction = self._channel.transaction
        self.give_back([*self.deliveries.take_all(), *(transaction.settled if transaction else ())])


def _has_room(offsets: OffsetSet, first: int, end: int) -> bool:
    """Return whether a set with these offsets, too, can be encoded."""
    return not offsets or max(end, offsets.end) - min(first, offsets.first) < MAX_SPAN


def _done(*_: object) -> None:
    """Nobody is told that an acknowledgement was taken."""
