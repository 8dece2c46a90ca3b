"""The role ``transactor``, and how any client of a drill carries out a transaction and finds out how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import txbroker
from journal.arguments import checked_xid
from journal.records.group_entries import PartitionOffset
from journal.scheduled_id import ScheduledId
from journal.transaction_states import State
from journal.xid import Xid
from txbroker.client.blocking.transaction import Transaction
from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import Began, Decided, Ended, Prepared, Unknown
from txbroker.drill.clients.life import EXPECTED, LOST, Life, text_of
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.plan.orders import LARGE_MESSAGES
from txbroker.drill.plan.plan import FORMAT_ID, WRITTEN, Plan
from txbroker.errors import (
    AlreadySent,
    DeliveryLost,
    NotScheduled,
    OutcomeForgotten,
    OutcomeUnknown,
    ScheduleHeld,
    StorageUnavailable,
    TransactionConflict,
    TransactionRolledBack,
    UnknownTransaction,
)

PATIENCE = 60.0
"""Seconds after which a client that cannot find out how a transaction ended leaves it to the coordinator."""

SHARES = (1, 2, 2, 3, 5, 8, 30)
"""How many messages a transaction has."""

ROLLED_BACK = 0.15
DIES_PREPARED = 0.03
DIES_DECIDED = 0.03
LINGERS = 0.05
LARGE = 0.03
"""Shares of transactions: rolled back on purpose; whose client dies before or after its decision; that stay prepared
for some seconds; that are large, if the plan wants them."""


NOT_THERE = (AlreadySent, NotScheduled, ScheduleHeld, DeliveryLost)
"""Refusals of a transaction that was to take back what does not wait any more, or to acknowledge what its session has
no more.
"""


class LeftToCoordinator(Exception):
    """The client could not find out in time how a transaction ended; its life ends here."""


class Consumed(Protocol):
    """What a relay has read; the transaction moves its positions."""

    @property
    def group(self) -> str:
        """Return the group's name."""

    def offsets(self) -> list[PartitionOffset]:
        """Return the positions after the messages that were handed out."""

    def commit(self) -> None:
        """Commit these positions; between ``tpc_begin`` and its end the commit joins that transaction."""


class Later(NamedTuple):
    """When a message is due, as an argument of ``send``, and the earliest moment, in µs since 1970 UTC."""

    argument: dict[str, Any]
    earliest: int


class TakenBack(NamedTuple):
    """A scheduled message that a transaction takes back: which of the life's messages, and its id."""

    operation: int
    number: int
    id: ScheduledId


class Published(NamedTuple):
    """A message for queues: the ``way`` that it goes, and the exchange and the key that lead there."""

    way: str
    exchange: str
    key: str
    identity: MessageId


class Work(NamedTuple):
    """What a transaction is to do. Without ``later`` its messages are for now. ``published`` are its messages for
    queues, ``acknowledged`` are those of a queue, whose name in the plan is ``queue``.
    """

    operation: int
    places: list[int]
    identities: list[MessageId]
    two_phase: bool
    commit: bool
    moves: list[tuple[int, int, int]] = []  # noqa: RUF012  (a tuple's default, never changed)
    consumer: Consumed | None = None
    later: list[Later] = []  # noqa: RUF012
    taken_back: list[TakenBack] = []  # noqa: RUF012
    published: list[Published] = []  # noqa: RUF012
    queue: str = ""
    acknowledged: list[Message] = []  # noqa: RUF012

    def messages(self) -> Iterator[tuple[int, MessageId, dict[str, Any]]]:
        """Yield place, message and when it is due, if not now."""
        due = [each.argument for each in self.later] or [{} for _ in self.places]
        yield from zip(self.places, self.identities, due, strict=True)


def transact(life: Life) -> None:
    """Run the role ``transactor``: one transaction after the other, over several topics."""
    connection = life.connect()
    while life.goes_on():
        work = draw(life)
        if not Carrying(life, connection, work).run():
            life.drop(connection)
            life.pause()
            connection = life.connect()
        life.pace(len(work.places))
    life.drop(connection)


def draw(life: Life) -> Work:
    """Draw the next transaction by chance."""
    chance, plan = life.chance, life.plan
    large = plan.large and chance.random() < LARGE
    count = LARGE_MESSAGES if large else chance.choice(SHARES)
    operation = life.next_operation()
    return Work(
        operation,
        chance.choices(plan.places(*WRITTEN), k=count),
        [life.identity(operation, index, count, large) for index in range(count)],
        chance.random() < plan.two_phase,
        large or chance.random() >= ROLLED_BACK,
    )


def xid_of(plan: Plan, sender: str, operation: int) -> Xid:
    """Return the xid of a transaction of the drill; from the xid the coordinator knows the client."""
    return checked_xid(Xid(FORMAT_ID, f"{plan.name}/{sender}/{operation}".encode(), b"drill"))


def owner_of(plan: Plan, xid: Xid) -> tuple[str, int] | None:
    """Return sender and operation of an xid of this drill; None for all others."""
    name, _, rest = xid.global_id.decode("ascii", "replace").partition("/")
    sender, _, operation = rest.partition("/")
    if xid.format_id != FORMAT_ID or name != plan.name or not operation.isdigit():
        return None
    return sender, int(operation)


class Phases(NamedTuple):
    """A transaction in two phases: what takes its content, and its steps."""

    content: Any
    prepare: Callable[[], None]
    commit: Callable[[], None]
    rollback: Callable[[], None]


class Carrying:
    """One transaction while it is carried out. :meth:`run` returns whether the connection may be used again."""

    def __init__(self, life: Life, connection: txbroker.Connection, work: Work) -> None:
        self._life = life
        self._connection = connection
        self._work = work
        self._xid = xid_of(life.plan, life.sender, work.operation)
        self.scheduled: list[ScheduledId] = []
        """The ids of its messages for later, once it is known to have committed, in one phase."""
        self._asked = False
        """Whether the broker may have been asked to decide; before that nothing can have happened."""

    def run(self) -> bool:
        """Begin, add, decide, and note how the transaction ended, whatever happens to the broker."""
        work, life = self._work, self._life
        life.ledger.write(
            Began(
                operation=work.operation,
                places=work.places,
                together=True,
                connection=life.connections,
                xid=str(self._xid) if work.two_phase else "",
                moves=work.moves,
                due=[each.earliest for each in work.later],
                takes_back=[each[:2] for each in work.taken_back],
                published=[each.way for each in work.published],
                acknowledges=[(work.queue, each.offset) for each in work.acknowledged],
            )
        )
        return self._two_phases() if work.two_phase else self._one_phase()

    # -- one phase ---------------------------------------------------------------------------------

    def _one_phase(self) -> bool:
        work = self._work
        transaction = self._connection.transaction()
        try:
            self._fill(transaction)
            if work.consumer is not None:
                transaction.commit_offsets(work.consumer)
            self._asked = True
            if not work.commit:
                transaction.rollback()
                self._end(committed=False)
                return work.consumer is None  # a relay must read its messages again
            transaction.commit()
        except (*EXPECTED, *NOT_THERE) as error:
            if not (self._asked and isinstance(error, OutcomeUnknown)):
                return self._failed(error)
            self._unknown(error)
            return self._ask_again(transaction)
        self._end(committed=True, transaction=transaction)
        return True

    def _fill(self, content: Any) -> None:
        """Add what the transaction is to do, but a relay's positions, to a transaction or to the connection that has
        begun it.
        """
        work = self._work
        for place, identity, due in work.messages():
            topic, partition = self._life.plan.layout[place]
            content.send(topic, value_of(identity), *self._labels(place), partition=partition, **due)
        for each in work.taken_back:
            content.cancel(each.id)
        for way, exchange, key, identity in work.published:
            content.publish(exchange, key, value_of(identity), {"way": way.encode()})
        if work.acknowledged:
            content.ack(work.acknowledged)

    def _labels(self, place: int) -> tuple[bytes, dict[str, bytes]]:
        return self._life.sender.encode(), {"place": b"%d" % place}

    def _failed(self, error: Exception) -> bool:
        """Note that the transaction will never happen: the connection is dropped, and with it the open transaction."""
        self._end(committed=False)
        if not isinstance(error, (TransactionRolledBack, *LOST, *NOT_THERE)):
            self._life.surprised(f"operation {self._work.operation}", error)
        return False

    def _ask_again(self, transaction: Transaction) -> bool:
        """Call the same method again until the outcome is known, as docs/clients.md says."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._life.pause()
            try:
                if self._work.commit:
                    transaction.commit()
                else:
                    transaction.rollback()
            except (OutcomeUnknown, StorageUnavailable):
                if (fatal := self._connection.core.fatal) is not None:
                    raise fatal from None  # nobody answers on this connection any more
                continue  # still unknown, and noted as such: asked again until the deadline
            except TransactionRolledBack:
                self._end(committed=False, found_out=True)
                return False
            self._end(committed=self._work.commit, found_out=True, transaction=transaction)
            return False
        raise LeftToCoordinator

    # -- two phases --------------------------------------------------------------------------------

    def _two_phases(self) -> bool:
        work = self._work
        try:
            phases = self._begun()
            self._fill(phases.content)
            if work.consumer is not None:
                work.consumer.commit()
            self._asked = True
            phases.prepare()
            self._prepared()
            commit = self._decide()
            phases.commit() if commit else phases.rollback()
        except (*EXPECTED, *NOT_THERE) as error:
            if not (self._asked and isinstance(error, LOST)):
                return self._failed(error)
            # A decision may have been taken without arriving: only asking shows it.
            self._unknown(error)
            return self._find_out()
        self._end(committed=commit)
        return commit or work.consumer is None

    def _begun(self) -> Phases:
        """Begin with PEP 249's calls, which do not know queues: what acknowledges is a transaction with an xid."""
        connection = self._connection
        if self._work.acknowledged:
            transaction = connection.transaction(self._xid)
            return Phases(transaction, transaction.prepare, transaction.commit, transaction.rollback)
        connection.tpc_begin(self._xid)
        return Phases(connection, connection.tpc_prepare, connection.tpc_commit, connection.tpc_rollback)

    def _prepared(self) -> None:
        life = self._life
        life.ledger.write(Prepared(operation=self._work.operation))
        if life.chance.random() < DIES_PREPARED:
            life.die()
        if life.chance.random() < LINGERS:
            time.sleep(life.chance.uniform(1.0, 4.0))

    def _decide(self) -> bool:
        life, commit = self._life, self._work.commit
        life.ledger.write(Decided(operation=self._work.operation, commit=commit))
        if life.chance.random() < DIES_DECIDED:
            life.die()
        return commit

    def _find_out(self) -> bool:
        """Ask by xid, on the same connection: the broker ends the old session before it answers on the new one."""
        deadline = time.monotonic() + PATIENCE
        decided: bool | None = None
        while time.monotonic() < deadline:
            self._life.pause()
            try:
                state = self._connection.outcome(self._xid).state
                if state is State.PREPARED:
                    if decided is None:
                        self._prepared()
                        decided = self._decide()
                    self._tell(decided)
                elif state in (State.COMMITTED, State.ROLLED_BACK):
                    self._end(committed=state is State.COMMITTED, found_out=True)
                    return False
            except UnknownTransaction:
                self._end(committed=False, found_out=True)  # presumed abort
                return False
            except (OutcomeForgotten, TransactionConflict) as error:
                self._life.surprised(f"operation {self._work.operation}, asking how it ended", error)
                raise LeftToCoordinator from error
            except EXPECTED:
                # no answer this time either; the next question by the xid covers a decision that may have arrived
                continue
        raise LeftToCoordinator

    def _tell(self, commit: bool) -> None:
        """End the prepared transaction as any session may: in an operation of its own, by the xid."""
        with_xid = self._life.connect()
        try:
            with_xid.tpc_commit(self._xid) if commit else with_xid.tpc_rollback(self._xid)
        finally:
            self._life.drop(with_xid)

    # -- the ledger --------------------------------------------------------------------------------

    def _unknown(self, error: Exception) -> None:
        self._life.ledger.write(Unknown(operation=self._work.operation, error=text_of(error)))

    def _end(self, committed: bool, found_out: bool = False, transaction: Transaction | None = None) -> None:
        layout, runs = self._life.plan.layout, transaction.runs if transaction is not None else []
        self.scheduled = transaction.scheduled if transaction is not None and committed else []
        where = [(layout.index((run.topic, run.partition)), run.base_offset, run.messages) for run in runs]
        self._life.ledger.write(
            Ended(operation=self._work.operation, committed=committed, found_out=found_out, runs=where)
        )
