"""``txbroker.join``: messages, and connections that can prepare, in the transactions of the package ``transaction``.

There is one data manager per transaction and coordinator. Its vote prepares everything (forced at each participant),
its finish forces the decision to the coordinator's log and tells the participants. ``docs/coordinator.md`` says what
that promises beside managers which do not keep their vote over a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from zope.interface import implementer

from journal.constants import MIB
from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId
from journal.transaction_states import State
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.loop.waiting import Waits, taken_back, waiting
from txbroker.coordinator.broker_resource import StagingBroker
from txbroker.coordinator.decision_log import Decision
from txbroker.coordinator.gids import Branch, Gids, new_identity
from txbroker.coordinator.participation import resource_of
from txbroker.coordinator.resource import Ending, Resource
from txbroker.coordinator.two_phase import CoordinatedTransaction, Decides, Registry
from txbroker.databases.adapters.postgresql import sqlstate

try:
    from transaction.interfaces import (  # type: ignore[import-untyped]
        IDataManagerSavepoint,
        IRetryDataManager,
        ISavepointDataManager,
    )
except ImportError as error:
    raise ImportError(
        f"txbroker.join needs the package `transaction` ({error}): pip install 'txbroker[zope]'"
    ) from error

log = logging.getLogger("txbroker.coordinator")

MAX_BYTES = 16 * MIB
"""Bytes of keys, values and headers of one transaction that are kept in memory until its vote, by default."""

_RETRIED_SQLSTATES = ("40001", "40P01")


def join(
    manager: Any,
    broker: Connection,
    *,
    coordinator: Registry | None = None,
    participant: str = "",
    max_bytes: int = MAX_BYTES,
) -> Messages:
    """Return an object that sends messages with the transactions of ``manager`` (``transaction.manager``, or another
    one).

    With a ``coordinator``, ``participant`` is the name under which the broker is registered there, and the
    coordinator's log finishes the transaction after a crash between vote and finish. Without one, a transaction that
    was prepared then waits at the broker for a person. At most ``max_bytes`` of one transaction wait in memory until
    its vote. Any number of threads may use the result.
    """
    if coordinator is not None:
        coordinator.check_registered(participant)
    return Messages(manager, broker, coordinator, participant or "broker", max_bytes)


class Messages:
    """The messages of :func:`join`: it sends with the manager's current transaction."""

    def __init__(
        self, manager: Any, broker: Connection, coordinator: Registry | None, name: str, max_bytes: int
    ) -> None:
        self.broker = broker
        self._manager = manager
        self._decides: Decides = coordinator or _NoLog(broker)
        self._name = name
        self._max_bytes = max_bytes

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        id: GivenId = None,
        tags: GivenTags = None,
        *,
        after: After | None = None,
        at: At | None = None,
    ) -> None:
        """Send a message when the current transaction commits. The arguments are those of ``Connection.send``; when it
        is due, if it is sent later, is fixed by this call.

        The message is kept in memory until the vote. An unknown topic or a message that is too large is refused
        then, and the transaction aborts. Raises BufferFull over ``max_bytes``; the transaction may go on without
        this message.
        """
        moment = time.time_ns() // 1000 if timestamp is None else timestamp
        self._keep(waiting(topic, value, key, headers, partition, moment, id, tags, after, at))

    def cancel(self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None) -> None:
        """Take a scheduled message back when the current transaction commits, or all that wait with that id of their
        sender.

        The broker is asked before the vote, and the transaction aborts if the message does not wait then: AlreadySent,
        ScheduleHeld or NotScheduled. Raises BufferFull as :meth:`send`.
        """
        self._keep(taken_back(id, message_id))

    def _keep(self, waits: Waits) -> None:
        self.broker._driver.check_process()
        buffer = _joined(self._decides, self._manager).send_buffer(self._name, self.broker)
        size = waits.size
        if buffer.held + size > self._max_bytes:
            raise errors.BufferFull(
                f"{buffer.held} bytes of this transaction wait for its vote, {size} more are over max_bytes "
                f"({self._max_bytes}); the message was not taken, the transaction is as it was"
            )
        buffer.keep(waits, size)


def join_connections(coordinator: Registry, manager: Any, connections: Mapping[str, Any]) -> None:
    """Let connections take part in the manager's current transaction."""
    for name, connection in connections.items():
        coordinator.check_registered(name)
        _joined(coordinator, manager).enlist(name, resource_of(connection))


def _joined(decides: Decides, manager: Any) -> JoinedTransaction:
    """Return the data manager of the current transaction; joined now, if there is none, or a savepoint removed it."""
    current = manager.get()
    found: JoinedTransaction | None = None
    with suppress(KeyError):  # the package raises it if we have not joined this transaction yet
        found = current.data(decides)
    if found is not None and not found.is_over:
        return found
    made = JoinedTransaction(decides, manager)
    current.join(made)
    current.set_data(decides, made)
    return made


class _SendBuffer:
    """The messages of a transaction to one broker, and those that it takes back."""

    def __init__(self, broker: Connection) -> None:
        self.broker = broker
        self.messages: list[Waits] = []
        self.held = 0
        """Bytes of all of them."""

    def keep(self, message: Waits, size: int) -> None:
        """Add a message."""
        self.messages.append(message)
        self.held += size

    def drop_behind(self, count: int) -> None:
        """Keep the first ``count`` messages."""
        self.held -= sum(message.size for message in self.messages[count:])
        del self.messages[count:]


@implementer(ISavepointDataManager, IRetryDataManager)
class JoinedTransaction:
    """The data manager: the work of one transaction at brokers and at connections that can prepare."""

    def __init__(self, decides: Decides, manager: Any) -> None:
        self.transaction_manager = manager
        self.is_over = False
        self.coordinated = CoordinatedTransaction(decides, {})
        self.coordinated.enter()
        self._send_buffers: dict[str, _SendBuffer] = {}
        self._resources: dict[str, Resource] = {}
        self._savepoints = 0

    def send_buffer(self, name: str, broker: Connection) -> _SendBuffer:
        """Return the messages that wait for a broker."""
        return self._send_buffers.setdefault(name, _SendBuffer(broker))

    def enlist(self, name: str, resource: Resource) -> None:
        """Begin at a connection."""
        self.coordinated.add(name, resource)
        self._resources[name] = resource

    # -- two phases --------------------------------------------------------------------------------

    def sortKey(self) -> str:
        """After ZODB's storages, whose conflicts are found in their votes and cost us nothing then; and before what
        commits in its vote, which is why zope.sqlalchemy's keys begin with ``~s``.
        """
        return f"~0txbroker:{self.coordinated.gid}"

    def tpc_begin(self, transaction: object) -> None:
        """Do nothing: enlisted connections have begun."""

    def commit(self, transaction: object) -> None:  # noqa: ARG002 - the interface's
        """Send the waiting messages; the brokers stage them."""
        for name, buffer in self._send_buffers.items():
            if buffer.messages:
                staging = StagingBroker(buffer.broker)
                self.coordinated.add(name, staging)
                for message in buffer.messages:
                    message.carry_out(staging.transaction)

    def tpc_vote(self, transaction: object) -> None:  # noqa: ARG002 - the interface's
        """Prepare everything; raises, with all of it rolled back, if that cannot be done."""
        self.coordinated.prepare()

    def tpc_finish(self, transaction: object) -> None:  # noqa: ARG002 - the interface's
        """Force the decision, then tell every participant.

        After the decision nothing is raised, because managers behind this one would be aborted for it. Before it,
        DiskFull means that our part is rolled back, OutcomeUnknown that this is unknown.
        """
        self.is_over = True
        try:
            self.coordinated.commit()
        except errors.DeliveryPending as error:
            log.warning("%s", error)
        except errors.HeuristicMixed as error:
            log.critical("%s", error)

    def tpc_abort(self, transaction: object) -> None:  # noqa: ARG002 - the interface's
        """Roll back, prepared or not; do nothing if it is decided, or if that is unknown."""
        self._roll_back()

    def abort(self, transaction: object) -> None:  # noqa: ARG002 - the interface's
        """Roll back a transaction that has not voted."""
        self._roll_back()

    def _roll_back(self) -> None:
        self.is_over = True
        self._send_buffers.clear()
        self.coordinated.rollback()

    def should_retry(self, error: BaseException) -> bool:
        """Return whether ``manager.attempts()`` should try again: known not to be committed, and likely to succeed."""
        if isinstance(error, (errors.StorageUnavailable, errors.TransactionRolledBack)):
            return not isinstance(error, errors.HeuristicOutcome)
        return sqlstate(error) in _RETRIED_SQLSTATES

    # -- savepoints --------------------------------------------------------------------------------

    def savepoint(self) -> JoinedSavepoint:
        """Remember the waiting messages; make a savepoint of SQL at each connection."""
        self._savepoints += 1
        name = f"txbroker_{self._savepoints}"
        for resource in self._resources.values():
            _execute(resource, f"SAVEPOINT {name}")
        kept = {broker: len(buffer.messages) for broker, buffer in self._send_buffers.items()}
        return JoinedSavepoint(self, name, kept, frozenset(self._resources))

    def roll_back_to(self, savepoint: JoinedSavepoint) -> None:
        """Drop later messages; a connection that was enlisted later begins anew."""
        for broker, buffer in self._send_buffers.items():
            buffer.drop_behind(savepoint.kept.get(broker, 0))
        for name, resource in self._resources.items():
            if name in savepoint.resources:
                _execute(resource, f"ROLLBACK TO SAVEPOINT {savepoint.name}")
            else:
                self.coordinated.restart(name)


@implementer(IDataManagerSavepoint)
class JoinedSavepoint:
    """A place in a transaction to go back to."""

    def __init__(
        self, joined: JoinedTransaction, name: str, kept: dict[str, int], resources: frozenset[str]
    ) -> None:
        self.name = name
        self.kept = kept
        self.resources = resources
        self._joined = joined

    def rollback(self) -> None:
        """Go back; may be repeated."""
        self._joined.roll_back_to(self)


def _execute(resource: Resource, statement: str) -> None:
    cursor = resource.connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()


class _NoLog:
    """Replaces a coordinator: decides nothing durably. One broker takes part, so its answer is the decision."""

    def __init__(self, broker: Connection) -> None:
        self._broker = broker
        self._gids = Gids(new_identity(), 0)
        self._lock = threading.Lock()
        self._decided: dict[str, Decision] = {}

    def begun(self) -> str:
        with self._lock:
            return self._gids.make()

    def check_identity(self, name: str, identity: str) -> None:
        """Do nothing: there is only one participant."""

    def decided(self, decision: Decision) -> None:
        self._decided[decision.gid] = decision

    def acknowledged(self, branch: Branch, ending: Ending) -> None:
        self._decided.pop(branch.gid, None)
        if ending.state is not State.COMMITTED:
            log.critical(
                "%s was rolled back at the broker by %s (%s), while the transaction that it belongs to was committed",
                branch.gid,
                ending.by or "somebody",
                ending.why,
            )

    def rolled_back(self, branch: Branch, ending: Ending) -> None:
        if ending.state is not State.ROLLED_BACK:
            log.critical(
                "%s was committed at the broker by %s, and aborted here", branch.gid, ending.by or "somebody"
            )

    def left(self, gid: str) -> None:
        """Do nothing: no participant thread waits for it."""

    def hurry(self, gid: str, names: Iterable[str]) -> None:
        """Tell the broker again and again, until it answers, or the process ends."""
        for name in names:
            work = (Branch(gid, name), gid in self._decided)
            threading.Thread(target=self._tell, args=work, name="txbroker-join", daemon=True).start()

    def _tell(self, branch: Branch, commit: bool) -> None:
        resource, what = StagingBroker(self._broker), "commit" if commit else "roll back"
        while True:
            try:
                ending = resource.end(branch, commit, "", False)
            except errors.ConnectionClosed:
                log.critical(
                    "%s: %s at the broker by hand: it was not told before its connection closed", branch, what
                )
                return
            except errors.TxBrokerError as error:
                log.warning("%s: the broker cannot be told to %s yet: %s", branch.gid, what, error)
                time.sleep(1.0)
            else:
                (self.acknowledged if commit else self.rolled_back)(branch, ending)
                return

    def mixed(self, gid: str) -> errors.HeuristicMixed | None:  # noqa: ARG002 - a coordinator's
        return None
