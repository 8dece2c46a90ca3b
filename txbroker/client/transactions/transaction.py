"""Transactions of a client: the decision, and finding out about it after a loss."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from journal.arguments import checked_xid, micros
from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags, marked
from journal.records.group_entries import PartitionOffset, Settled
from journal.scheduled_id import ScheduledId
from journal.transaction_states import State, TransactionNumber
from journal.xid import Xid
from txbroker import errors
from txbroker.client.consumer.receiver import Received, Receiver
from txbroker.client.consumer.retries import Said
from txbroker.client.core.call import AnswerLost, Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Lost
from txbroker.client.core.phase import Phase
from txbroker.client.core.positions import TakesPart
from txbroker.client.core.promise import start
from txbroker.client.core.results import Durability, Message, Receipt, Run
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.producer.producer import Producer
from txbroker.client.producer.route import Route
from txbroker.client.producer.schedule_queue import scheduled
from txbroker.client.transactions.contents import Adds, Contents, NotBegun, Unsent
from txbroker.client.transactions.decision import Decision, Stage, decided, reason_of, way_to_ask
from txbroker.client.transactions.serials import Serials
from txbroker.wire import messages as commands
from txbroker.wire.messages import Committed, Done

log = logging.getLogger("txbroker.client")

_FENCED = (errors.GenerationFenced, errors.OffsetPending)
"""Errors that mean that another client reads on in these partitions, or holds them."""


_LEFT_ALONE = (errors.TransactionConflict, errors.ConnectionClosed, errors.ConnectionUnavailable)
"""Errors of a decision after which the transaction is as it was."""


class Transaction:
    """Messages and offsets that become visible together, or never. It begins with the first of them."""

    def __init__(self, core: Core, producer: Producer, serials: Serials, xid: Xid | None = None) -> None:
        self.xid = None if xid is None else checked_xid(xid)
        self.contents = Contents(core, producer, serials, self.xid)
        self.stage = Stage.OPEN
        self.runs: list[Run] = []
        self.scheduled: list[ScheduledId] = []
        self.heuristic = False
        self.received = Received()
        self.core = core
        self.producer = producer
        self._serials = serials
        self._dead: errors.TxBrokerError | None = None
        self._gone = False
        self._decision = Decision(self.received.discard)
        self._is_unsure = False
        self.begins_beyond = 0
        """It begins at the broker when it has more bytes than this, or more than messages."""

    @property
    def number(self) -> TransactionNumber | None:
        """The number of the transaction in its session; None until its first request is sent."""
        return self.contents.number

    @property
    def _number(self) -> TransactionNumber:
        """The same once its first request is being sent."""
        number = self.contents.number
        assert number is not None
        return number

    @property
    def _name(self) -> str:
        return "the transaction" if self.number is None else f"transaction {self.number}"

    # -- adding ------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: GivenHeaders | None,
        partition: int | None,
        timestamp: int | datetime | None = None,
        id: GivenId = None,
        tags: GivenTags = None,
        after: After | None = None,
        at: At | None = None,
    ) -> Receipt:
        """Add a message; returns once the client has it, before the broker does. ``timestamp`` None is now.

        When it is due is fixed by this call, not by the commit.
        """
        moment = self.core.wall() if timestamp is None else micros("timestamp", timestamp)
        given = None
        if id is not None or tags is not None:
            headers, given = marked(headers, id, tags)
        came_through = False
        try:
            due = None if after is None and at is None else await self.core.schedule_time.due(after, at)
            logs = None if due is None else await self.producer.logs()
            route = await self.ready(topic)
            came_through = True
        except Exception:
            came_through = True  # a refusal: the transaction continues without this message
            raise
        finally:
            if not came_through:
                self.cut_short()
        queue, contents = route.choose(key, partition), self.contents
        message, log = (value, moment, key, headers), queue
        if due is not None and logs is not None:
            log, message = scheduled(logs, queue, due, message)
        try:
            contents.append(log, *message)
        except NotBegun:
            await self.begin()
            contents.append(log, *message)
        return Receipt(topic, queue.index, None, Durability.STAGED, given)

    def interrupted(self, before: int, error: BaseException) -> None:
        """Note that a call that adds, begun after ``before`` changes, ended with ``error``. A refusal is no change."""
        if self.contents.changes != before and not isinstance(error, errors.TxBrokerError):
            self.cut_short()

    def cut_short(self) -> None:
        """Note that a caller gave up while it sent a message, so the program does not know whether it was added."""
        if self._dead is None and self.stage is Stage.OPEN:
            self._dead = errors.TransactionRolledBack(
                f"a send of {self._name} was cancelled or interrupted, so it can only be rolled back; none of its "
                "messages become visible. Begin it again"
            )

    async def ready(self, topic: str) -> Route:
        """Begin, unless it has begun, and return the route to a topic; waits while too much is unsent, or raises
        BufferFull.
        """
        self.check_open()
        core = self.core
        route = self.producer.known_route(topic) or await self.producer.route(topic)
        while core.output_bytes > core.options.max_buffered:
            if core.options.when_full == "raise":
                raise errors.BufferFull(
                    f"{core.output_bytes} bytes are unsent, the client's bound is {core.options.max_buffered}; this "
                    "message was not taken, the transaction goes on"
                )
            await core.drained()
            self.check_open()
        if not self.contents.has_begun and self.contents.size >= self.begins_beyond:
            await self.begin()
            self.check_open()
        return route

    async def begin(self) -> None:
        """Belong to the present session, or the next one."""
        core = self.core
        await core.opened(core.clock() + core.options.timeout)
        contents = self.contents
        if not contents.has_begun:
            contents.session, contents.correlation = core.session, core.correlation()
            core.watch(Adds(contents.correlation, self.refused))

    async def add_offsets(
        self, group: str, offsets: list[PartitionOffset], settled: Sequence[Settled] = ()
    ) -> None:
        """Commit a group's positions, and finish offsets, with the transaction; empty lists do nothing."""
        self.check_open()
        if not offsets and not settled:
            return
        if not self.contents.has_begun:
            await self.begin()
        self.check_open()
        self.contents.add_offsets(group, offsets, settled)

    def receives(self, receiver: Receiver) -> None:
        """Let the receiver's group move with this transaction; raises if it is not open."""
        self.check_open()
        self.received.add(receiver)

    def retry_received(self, message: Message, said: Said) -> bool:
        """Try a message again that it has received, if it commits; return whether it has received it."""
        self.check_open()
        return self.received.retry(message, said)

    def joined_by(self, other: TakesPart) -> None:
        """Tell another party how this ends."""
        self.received.add(other)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with commit or rollback."""
        return self.stage in (Stage.COMMITTED, Stage.ROLLED_BACK)

    @property
    def is_empty(self) -> bool:
        """Whether it has no contents: neither messages nor positions."""
        return self.contents.is_empty and not self.received.settlement()

    @property
    def moves_groups(self) -> bool:
        """Whether positions of groups, or finished offsets, are among its contents."""
        return self.contents.moves_groups

    @property
    def is_read_only(self) -> bool:
        """Whether it has been prepared and had no contents: no broker knows of it."""
        return self.stage is Stage.PREPARED and not self.contents.is_known

    async def _complete(self) -> None:
        """Wait until all of its contents are added; raises if they are not."""
        self.check_open()
        if not self.contents.has_begun and not self.contents.is_empty:
            await self.begin()
            self.check_open()
        for group, offsets, settled in self.received.settlement():
            await self.add_offsets(group, offsets, settled)
        # Unequal if a call that adds was interrupted: not every counted message was added.
        if self.contents.taken != self.contents.added:
            self.cut_short()
            self.check_open()

    async def outside(self) -> list[tuple[PartitionQueue, bytes]] | None:
        """Return the frames of each partition, for a transaction that is committed elsewhere; None if it has more than
        messages, or more than :attr:`begins_beyond` bytes. Then :meth:`ended_outside` says how it ended.
        """
        if self.outside_now() is None:
            return None
        reports = self.producer.reports
        report = None if reports is None else self.contents.report(reports)
        if reports is not None and report is not None:
            await self.send(reports.topic, report, None, None, None)
        return self.outside_now()

    def outside_now(self) -> list[tuple[PartitionQueue, bytes]] | None:
        """Do what :meth:`outside` does, without a report."""
        self.check_open()
        contents = self.contents
        if contents.has_begun or contents.size > self.begins_beyond or self.received.settlement():
            return None
        if contents.taken != contents.added:
            self.cut_short()
            self.check_open()
        return contents.sealed()

    def ended_outside(self, is_committed: bool) -> None:
        """Note how it ended elsewhere."""
        self._end(Stage.COMMITTED if is_committed else Stage.ROLLED_BACK)

    def _unsent(self) -> Unsent:
        """Return the part that the deciding request carries. It goes out in the session in which it began."""
        if self.core.phase is not Phase.OPEN or self.core.session != self.contents.session:
            self.refused(errors.ConnectionClosed("the connection died"))
            self.check_open()
        return self.contents.unsent()

    # -- deciding ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Have the broker promise to keep it, if it has contents: if nothing was sent, the broker is not asked.

        That is XA's read-only vote (``XA_RDONLY``): nothing is kept anywhere, and commit and rollback only end it here.
        If the caller gives up, the prepare goes on by itself; a second call returns its result.
        """
        if self.xid is None:
            raise errors.Misuse(
                "this transaction was begun without an xid: it cannot be prepared; nothing was sent"
            )
        self._is_unsure = False
        await self._decision.made(Stage.PREPARED, self._prepare)

    def prepare_cut_short(self) -> None:
        """Note that a caller gave up while it prepared: for the program it is not prepared, unless it asks again."""
        self._is_unsure = True

    async def _prepare(self) -> None:
        if self.stage is Stage.DECIDING:
            await self._find_out()
            return
        await self._complete()
        reports = self.producer.reports
        report = None if reports is None else self.contents.report(reports)
        if reports is not None and report is not None:
            # Its last message: the report is committed with the transaction, whoever commits it.
            await self.send(reports.topic, report, None, None, None)
        if self.contents.is_empty:
            self.stage = Stage.PREPARED
            return
        core, unsent = self.core, self._unsent()
        assert self.xid is not None
        request = commands.Prepare(
            core.correlation(), self._number.serial, self.xid, unsent.totals, self._serials.seen, unsent.runs,
            unsent.positions, unsent.cancels,
        )  # fmt: skip
        await self._decide(core.request(request, Done, unsent.data), Stage.PREPARED)

    async def commit(self, held: bool = False) -> None:
        """Make it visible: in one phase, or as the second phase after :meth:`prepare`.

        If the caller gives up, the commit goes on by itself; a second call returns its result. No rollback follows it.
        With ``held`` the request of the second phase may wait for the next one, as in :meth:`Core.request`.
        """
        self._is_unsure = False
        await self._decision.made(Stage.COMMITTED, partial(self._commit, held))

    async def _commit(self, held: bool) -> None:
        if self.stage is Stage.ROLLED_BACK and self._decision.verdict is not None:
            raise self._decision.verdict
        if self.stage is Stage.DECIDING:
            await self._find_out()
        core = self.core
        if self.is_read_only or self.stage is Stage.COMMITTED:
            self._end(Stage.COMMITTED)  # once more, because that may have been interrupted
            return
        if self.stage is Stage.PREPARED:
            session, serial = self._number
            second = commands.Commit(core.correlation(), session, serial, seen=self._serials.seen)
            await self._decide(core.request(second, Committed, held=held), Stage.COMMITTED)
            return
        await self._complete()
        if self.contents.is_empty:
            self._end(Stage.COMMITTED)
            return
        unsent = self._unsent()
        session, serial = self._number
        begins = unsent.totals is None
        one_phase = commands.Commit(
            core.correlation(), session, serial, self.xid if begins else None, unsent.totals, self._serials.seen,
            runs=unsent.runs, positions=unsent.positions, cancels=unsent.cancels,
        )  # fmt: skip
        await self._decide(core.request(one_phase, Committed, unsent.data, rule=Lost.ASK), Stage.COMMITTED)

    def abandon(self) -> None:
        """Have it rolled back, behind its requests on their way, without waiting: its block has ended with an error.

        A commit that is on its way, or whose end is not known, continues, and so does a prepared transaction, unless
        its program gave up while it prepared: then nothing else knows that it is, or may be, prepared.
        """
        is_committing = self._decision.under_way is Stage.COMMITTED
        is_known = self.stage is not Stage.OPEN and not self._is_unsure
        if self.stage in (Stage.COMMITTED, Stage.ROLLED_BACK):
            self._end(self.stage)  # once more, because that may have been interrupted
            return
        if is_committing or is_known or self.core.fatal is not None:
            self.received.discard()
            self.leave()
            return
        rolling_back = start(self.rollback())
        rolling_back.then(lambda: _tell(self, rolling_back.error))

    async def rollback(self) -> None:
        """Roll it back. Returns also if it is rolled back already; raises OutcomeUnknown if it may still be
        committed.
        """
        gone = self._gone and self.stage is Stage.OPEN
        if not self.contents.is_known or gone or self.stage is Stage.ROLLED_BACK:
            self._end(Stage.ROLLED_BACK)
            return
        if self.stage is Stage.COMMITTED:
            raise errors.TransactionCommitted(f"transaction {self.number} is committed")
        self.contents.drop_unsent()
        core = self.core
        session, serial = self._number
        request = commands.Rollback(core.correlation(), session, serial, seen=self._serials.seen)
        may_be_prepared = self.stage is not Stage.OPEN or self._decision.under_way is not None
        call = core.request(request, Done, rule=None if may_be_prepared else Lost.ASK)
        if not may_be_prepared:
            self._end(Stage.ROLLED_BACK)  # or the broker does so when the session ends
        try:
            # After such a refusal it is rolled back; after a loss the broker does it when it notices the dead
            # connection.
            with suppress(errors.TransactionRolledBack, AnswerLost):
                await call
        except errors.TransactionCommitted:
            self._end(Stage.COMMITTED)  # by another client; a second call raises the same again
            raise
        except errors.UnknownTransaction as error:
            if may_be_prepared:  # a prepare or commit was sent, and may still arrive
                raise self._unknown(str(error)) from error
        self._end(Stage.ROLLED_BACK)

    async def _decide(self, call: Call[Done] | Call[Committed], goal: Stage) -> None:
        """Wait for a decision's answer; if it is lost, ask how it ended."""
        try:
            answer: Done | Committed = await call
        except AnswerLost:
            self.stage = Stage.DECIDING
            await self._find_out()
        except errors.OutcomeUnknown as error:
            if self.stage is Stage.OPEN:
                self.stage = Stage.DECIDING
            raise self._unknown(str(error)) from error
        except (errors.TransactionRolledBack, errors.ContentMismatch, *_FENCED) as error:
            if isinstance(error, _FENCED):
                self.received.fenced()
            self._end(Stage.ROLLED_BACK)
            if self._dead is not None and isinstance(error, errors.ContentMismatch):
                raise self._dead from error  # the reason why not everything has arrived
            raise error from self._dead
        except _LEFT_ALONE:
            raise
        except (errors.RequestRefused, errors.StorageUnavailable) as error:
            if self.stage is Stage.OPEN:
                self.refused(error)  # neither the request's contents nor what was added before are kept
            raise
        else:
            if isinstance(answer, Committed):
                self.runs, self.scheduled = self.contents.places(answer.placements)
                self.heuristic = answer.heuristic
            self._end(goal)

    async def _find_out(self) -> None:
        """Ask for the outcome until it is decided; raises unless it is prepared or committed."""
        number = self._number
        try:
            outcome = await decided(self.core, number)
        except errors.TxBrokerError as error:
            raise self._unknown(str(error)) from error
        if outcome.state is State.ROLLED_BACK:
            self._end(Stage.ROLLED_BACK)
            raise errors.TransactionRolledBack(f"transaction {number} was rolled back {reason_of(outcome)}")
        if outcome.state is State.COMMITTED:
            self.runs, self.scheduled = self.contents.places(outcome.placements)
        self._end(Stage.COMMITTED if outcome.state is State.COMMITTED else Stage.PREPARED)

    def leave(self) -> None:
        """Note that the program is done with it, and may never ask how it ended."""
        number = self.contents.number
        if number is not None:
            self._serials.left(number)

    def _unknown(self, reason: str) -> errors.OutcomeUnknown:
        self.received.discard()
        self.leave()
        return errors.OutcomeUnknown(
            f"whether transaction {self.number} was decided is not known: {reason}; "
            + way_to_ask(self.core, self.number)
        )

    def _end(self, stage: Stage) -> None:
        self.stage = stage
        reports = self.producer.reports
        if stage is Stage.COMMITTED and reports is not None:
            reports.committed(self.contents.counts(reports))
            self.contents.reported()
        self.contents.drop_unsent()
        if stage is not Stage.PREPARED:
            self.received.settle(stage is Stage.COMMITTED)
        if stage is Stage.COMMITTED:
            for each in list(self.core.attending):
                each.committed()
        if self.contents.correlation:
            self.core.unwatch(self.contents.correlation)
        number = self.contents.number
        if number is not None and stage is not Stage.PREPARED:
            self._serials.ended(number)

    def check_open(self) -> None:
        """Raise unless it is open, and may be committed."""
        if self._dead is not None:
            raise self._dead
        if self.stage is not Stage.OPEN:
            raise errors.Misuse(f"the transaction is {self.stage.value}; nothing was sent")

    def refused(self, error: errors.TxBrokerError) -> None:
        """Note that an add was refused, or the session ended: it can only be rolled back."""
        if isinstance(error, (errors.OutcomeUnknown, errors.ConnectionClosed)):
            self._gone = True
            error = errors.TransactionRolledBack(
                f"{self._name} is rolled back, because its connection died before it was prepared "
                f"({error}); begin it anew"
            )
        else:
            error.add_note(f"{self._name} can only be rolled back now")
            if isinstance(error, _FENCED):
                self.received.fenced()
            if isinstance(error, (errors.UnknownPartition, errors.MessageTooLarge)):
                # One of the topics is gone, or takes less than it did: the next send looks.
                for topic in self.contents.topics:
                    self.producer.forget_route(topic)
        self._dead = error


def _tell(transaction: Transaction, error: BaseException | None) -> None:
    """Log that a rollback failed which no caller waits for."""
    if error is not None and not isinstance(error, errors.ConnectionClosed):
        log.warning(
            "rolling back transaction %s failed (%s); an undecided one is rolled back when its session ends",
            transaction.number,
            error,
        )
