"""What the two faces on an event loop share: a core whose output, alarms and callbacks the loop sees to."""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any

from journal.arguments import micros, seconds
from journal.formats.record import PartitionOffset
from journal.transaction import Xid
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.receiver import Receiver, Receivers
from txbroker.client.core import url as urls
from txbroker.client.core.answers import MOST_AT_ONCE
from txbroker.client.core.companion import Companion
from txbroker.client.core.core import Core
from txbroker.client.core.operations import Operations
from txbroker.client.core.options import Options
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.promise import Promise, settled, start
from txbroker.client.core.results import Durability, Message, Receipt
from txbroker.client.core.transaction_names import Which
from txbroker.client.loop import fork
from txbroker.client.loop.poller import check_system
from txbroker.client.producer.producer import Producer
from txbroker.client.producer.reports import LAST_REPORT_FAILED, log
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.transaction import Transaction
from txbroker.client.transactions.two_phase import NO_CONSUMER, Exceptions, TwoPhase, xid_of

LATE = 0.1
"""Seconds. An alarm so much too late says that the loop has been held up."""


class LoopConnection(Exceptions, ABC):
    """A core on an event loop. A face connects, writes, sets alarms and tells of bytes and losses."""

    resolver: Companion | None = None
    """Ends what blocks of ``atomic``, of this or other processes, left undecided; there from the first block on."""

    def __init__(self, address: urls.Address, options: Options) -> None:
        check_system(address)
        self.address = address
        named = options._replace(client=fork.process_name() if options.client == "" else options.client)
        self.core = Core(named, time.monotonic, random.random, lambda: time.time_ns() // 1000)
        self.core.answers.most = MOST_AT_ONCE
        self._producer = Producer(self.core)
        self._serials = Serials(self.core)
        self._operations = Operations(self.core)
        self._two_phase = TwoPhase(self.core, self._producer, self._serials, self._operations)
        self._receivers = Receivers(self.core)
        self._alarm_at = math.inf
        self._gives_way = False
        self._connected = False
        self._may_write = True
        self._settling = False
        self.is_forked = False
        fork.register(self)

    # -- the face's part ---------------------------------------------------------------------------

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Give bytes to the transport."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop the transport at once; tell :meth:`_lost` later."""

    @abstractmethod
    def _connect(self) -> None:
        """Begin to connect; tell :meth:`_made` or :meth:`_lost` later."""

    @abstractmethod
    def _set_alarm(self, seconds: float) -> None:
        """Call :meth:`_woken` after so many seconds, instead of at any earlier alarm."""

    @abstractmethod
    def _run(self, operation: Coroutine[Promise[Any], None, Any]) -> Any:
        """Run an operation of the core; something to await for its end."""

    def forked(self) -> None:
        """In a child: the connection belongs to the parent."""
        self.is_forked = True

    # -- what it shares ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """After anything happened: write, connect, set the alarm, call back."""
        if self._settling:
            return
        self._settling = True
        try:
            core = self.core
            if core.abort and self._connected:
                self._drop()
            if core.connection_due():
                core.connecting()
                self._connect()
            if self._connected and self._may_write and core.output_bytes:
                self._write(b"".join(core.take_output()))
            at = core.wakeup()
            if at < self._alarm_at:
                self._alarm_at = at
                self._set_alarm(max(0.0, at - core.clock()))
        finally:
            self._settling = False

    def _woken(self) -> None:
        late, self._alarm_at = self.core.clock() - self._alarm_at, math.inf
        self._gives_way = late > LATE and not self._gives_way
        if self._gives_way:
            # The loop was held up: what has come meanwhile is taken in before anything is given up.
            self._set_alarm(0.0)
            return
        try:
            self.core.tick()
        finally:
            self._settle()

    def _made(self) -> None:
        self._connected = True
        self._may_write = True
        self.core.connected()
        self._settle()

    def _received(self, data: bytes) -> None:
        try:
            self.core.received(data)
        finally:
            self._settle()

    def _lost(self, reason: str) -> None:
        self._connected = False
        self.core.lost(self.core.abort or reason)
        self._settle()

    def _flow(self, may_write: bool) -> None:
        """The transport is full, or has room again."""
        self._may_write = may_write
        self._settle()

    def _check_process(self) -> None:
        if self.is_forked:
            raise fork.refusal()
        check_asking(self.core.asking, self.core.thread())

    # -- operations that all of them have ----------------------------------------------------------

    async def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int | None,
        timestamp: int | datetime | None,
    ) -> Receipt:
        current = self._two_phase.current
        if current is not None:
            return await current.send(topic, value, key, headers, partition, timestamp)
        moment = self.core.wall() if timestamp is None else micros("timestamp", timestamp)
        message = (topic, value, moment, key, headers, partition)
        lane, batch, position = await self._producer.append(*message, watched=True)
        try:
            sent = await batch
        finally:
            # One whose caller has given up is told of by the next flush, or at the end.
            batch.untold = batch.untold or not batch.done
        return Receipt(topic, lane.index, sent.base_offset + position, Durability.FORCED)

    def commit_offsets(self) -> Any:
        """Fail with Misuse: of several consumers it does not say which; ``consumer.commit()`` does."""
        return self._run(self._commit_offsets())

    async def _commit_offsets(self) -> None:
        raise errors.Misuse(NO_CONSUMER)

    async def _end(self, timeout: float | None) -> None:
        """Flush, for so long at most, then stop."""
        limit = (
            self.core.options.timeout
            if timeout is None
            else seconds("timeout", timeout, "nothing was closed")
        )
        resolver, self.resolver = self.resolver, None
        if resolver is not None:
            resolver.stop(0.0)  # the loop's thread must not wait for it
        try:
            if self.core.fatal is None:
                # What has failed has been told, for on a loop each send has its future, unless its caller gave up.
                self._producer.failed = [batch for batch in self._producer.failed if batch.untold]
                await self._within(self._producer.flush(), limit)
                await self._report_last(limit)
        finally:
            self._abort()

    def _abort(self) -> None:
        """Close at once: nobody waits for anything of it."""
        self.core.stop(errors.ConnectionClosed("this connection has been closed; nothing was sent"))
        self._drop()

    async def _report_last(self, seconds: float) -> None:
        reports = self._producer.reports
        if reports is not None:
            try:
                if not await self._within(reports.report(closing=True), seconds):
                    log.warning(LAST_REPORT_FAILED, f"no answer within {seconds} s")
            except errors.TxBrokerError as error:
                log.warning(LAST_REPORT_FAILED, error)

    async def _within(self, operation: Coroutine[Promise[Any], None, None], seconds: float) -> bool:
        """Whether an operation has ended in time; raises what it raises."""
        task = start(operation)
        waiting = settled(task)
        alarm = self.core.waits.alarm(seconds, lambda: waiting.resolve(None))
        try:
            await waiting
        finally:
            alarm.cancel()
        if task.done:
            task.result()
        return task.done

    def _consumer(self, topics: Any, group: str | None, choices: dict[str, Any]) -> ConsumerCore:
        self._check_process()
        options = consumer_options(topics, group, **choices)
        return ConsumerCore(self.core, options, self.core.options.client)

    def _transaction(self, xid: Xid | None) -> Transaction:
        return Transaction(self.core, self._producer, self._serials, xid)

    @property
    def identity(self) -> str:
        """The name of the broker's data: xids and numbers mean something only together with it."""
        return self.core.identity

    def read_frames(self, number: int, offset: int, max_bytes: int = 1 << 20) -> Any:
        """Read once, undecoded, from the partition with that number; gives
        :class:`txbroker.client.core.results.Frames`.
        """
        return self._run(self._operations.read_frames(number, offset, max_bytes, 0.0))

    def wait_outcome(self, which: Which, timeout: float = 30.0) -> Any:
        """How a transaction ended, once it has; fails with OutcomeUnknown if it is undecided after so many seconds."""
        return self._run(self._operations.wait_outcome(which, timeout))

    def end_prepared(self, xid: Xid, commit: bool) -> Any:
        """Commit or roll back what another session has prepared, as its coordinator decided."""
        return self._run(self._operations.end_prepared(xid, commit))

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes) -> Xid:
        """PEP 249: make a transaction id; raises InvalidName over 64 bytes a part."""
        return xid_of(format_id, global_transaction_id, branch_qualifier)

    def tpc_begin(self, xid: Xid) -> None:
        """PEP 249: all sends and offset commits of this connection belong to ``xid`` from now on."""
        self._check_process()
        self._two_phase.begin(xid)


class LoopTransaction:
    """The part of a transaction that does not depend on the loop."""

    _connection: LoopConnection
    _core: Transaction

    def _receiver(self, topics: str | Sequence[str], group: str, choices: dict[str, Any]) -> Receiver:
        self._connection._check_process()
        receiver = self._connection._receivers.of(self._core, topics, group, choices)
        self._core.receives(receiver)
        return receiver

    def _abandon(self) -> None:
        """The block has ended with an error: a roll-back is posted, and not waited for."""
        if not self._connection.is_forked:
            self._core.abandon()
            self._connection._settle()


class LoopConsumer:
    """The part of a consumer that does not depend on the loop: what is here, and what has been handed out."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    @property
    def group(self) -> str:
        """The group's name, "" without one."""
        return self._core.options.group or ""

    @property
    def whole(self) -> bool:
        """Whether all has been handed out that its partitions held at one moment, as of the blocking client's."""
        return self._core.whole

    def offsets(self) -> list[PartitionOffset]:
        """The positions after the messages handed out so far, for ``Transaction.commit_offsets``."""
        return self._core.handed_out()

    def _pop(self) -> Message | None:
        """The next message, if it is here and nobody waits for it: most are, and need no turn of the loop."""
        current = self._core.current
        return current.one() if current is not None and self._core.line.is_free else None

    def _one(self) -> Message | None:
        """For who has the turn: the next message; None at the end."""
        return one_of(self._core)

    def _rest(self) -> list[Message]:
        """For who has the turn: the next messages, of one partition; none at the end."""
        delivery = self._core.look()
        return [] if delivery is None else delivery.rest()


def one_of(source: ConsumerCore | Receiver) -> Message | None:
    """For who has the turn: the next message; None at the end."""
    delivery = source.look()
    return None if delivery is None else delivery.one()
