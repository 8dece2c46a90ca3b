"""The transaction of a channel (``tx.select``): what it publishes and acknowledges is one, done at the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal.offset_set import OffsetSet
from journal.random_id import new_id
from journal.records.group_entries import GroupPositions, Settled, finishing
from journal.records.queue_entries import QUEUE_GROUP, address_of
from txbroker.amqp.methods import TxCommit, TxCommitOk, TxRollback, TxRollbackOk, TxSelect, TxSelectOk
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.consuming import Consuming
from txbroker.channels.contents import Content, content_of
from txbroker.channels.faces import ChannelFace
from txbroker.channels.pending import Transaction
from txbroker.channels.publishing import Publishing
from txbroker.channels.refusals import amqp_error
from txbroker.channels.settling import ELSEWHERE, Settling
from txbroker.channels.unacknowledged import Run
from txbroker.wire.messages import Commit, Refused


class Transacting:
    """The transactions of a channel."""

    def __init__(
        self, channel: ChannelFace, publishing: Publishing, settling: Settling, consuming: Consuming
    ) -> None:
        self._channel = channel
        self._publishing, self._settling, self._consuming = publishing, settling, consuming
        self.handlers: dict[type, Any] = {
            TxSelect: self.select,
            TxCommit: self.commit,
            TxRollback: self.rollback,
        }

    def select(self, method: TxSelect) -> None:  # noqa: ARG002
        """Have a transaction from now on, always."""
        channel = self._channel
        if self._publishing.is_confirmed:
            raise AmqpError(Reply.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        channel.transaction = channel.transaction or Transaction(channel.connection.uncommitted)
        channel.reply(TxSelectOk())

    def commit(self, method: TxCommit) -> None:  # noqa: ARG002
        """Commit, as one transaction of the broker: all of it happens, or the channel ends."""
        transaction = self._begin_next()
        runs, frames = _runs_of(transaction.frames)
        settled = _settled_of(transaction.acknowledged)
        if not (runs or settled):
            self._committed(transaction, [])
            return
        session = self._channel.requests.session
        positions = [GroupPositions(QUEUE_GROUP, new_id(), [], settled)] if settled else []
        unrouted = self._unrouted(transaction)
        transaction.release()
        serial = self._channel.connection.next_serial()
        then, refused = self._channel.replies.later(
            lambda *_: self._committed(transaction, unrouted),
            lambda refused: self._refused(transaction, refused),
        )
        self._channel.requests.ask(
            Commit, session.number, serial, seen=serial - 1, runs=runs, positions=positions, data=frames,
            then=then, refused=refused,
        )  # fmt: skip

    def _unrouted(self, transaction: Transaction) -> list[Content]:
        """Return the messages that come back because they find no queue."""
        directory, outside = self._channel.directory, self._channel.requests.host.outside
        those = [transaction.frames[each] for each in transaction.mandatory]
        return [
            content_of(frame, 0, len(frame), 0, outside=outside)
            for exchange, frame in those
            if not directory.has_way(exchange, frame)
        ]

    def _begin_next(self) -> Transaction:
        found = self._channel.transaction
        if found is None:
            raise AmqpError(Reply.PRECONDITION_FAILED, "channel is not transactional")
        self._channel.transaction = Transaction(self._channel.connection.uncommitted)
        return found

    def _committed(self, transaction: Transaction, unrouted: Sequence[Content]) -> None:
        channel = self._channel
        for content in unrouted:
            channel.replies.send(self._publishing.returned(content))
        self._settling.give_back(transaction.returned)
        for run in transaction.rejected:
            self._settling.reject_run(run)
        self._consuming.settled(transaction.settled)
        channel.reply(TxCommitOk())

    def _refused(self, transaction: Transaction, refused: Refused) -> None:
        """End the channel; whatever was acknowledged in the transaction is delivered again."""
        self._settling.give_back(transaction.settled)
        self._channel.fail(amqp_error(refused, self._channel.requests.host))

    def rollback(self, method: TxRollback) -> None:  # noqa: ARG002
        """Forget what was said: what was acknowledged is delivered to the channel's client still."""
        transaction = self._begin_next()
        transaction.release()
        for run in transaction.settled:
            self._settling.deliveries.put(run)
        self._channel.reply(TxRollbackOk())


def _runs_of(frames: Sequence[tuple[int, bytes]]) -> tuple[list[tuple[int, int]], bytes]:
    """Return messages as runs for the same exchange, and their bytes, in their order."""
    runs = list[tuple[int, int]]()
    for exchange, frame in frames:
        address = address_of(exchange, mandatory=False)
        if runs and runs[-1][0] == address:
            runs[-1] = (address, runs[-1][1] + len(frame))
        else:
            runs.append((address, len(frame)))
    return runs, b"".join([frame for _, frame in frames])


def _settled_of(runs: Sequence[Run]) -> list[Settled]:
    found: dict[int, OffsetSet] = {}
    for run in runs:
        if run.partition == ELSEWHERE:
            continue
        found.setdefault(run.partition, OffsetSet()).add_range(run.offset, run.offset + run.count)
    return [each for partition, offsets in found.items() for each in finishing(partition, offsets)]
