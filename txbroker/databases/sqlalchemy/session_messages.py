"""``carry``: ``session.commit()`` in existing code also commits the messages sent with the Session.

It uses the Connection's event ``commit``, which comes after every flush and every listener of the Session, whatever
commits. The row of the decision is inserted, the broker prepares, the driver commits, the broker is told, all inside of
the event. The COMMIT that SQLAlchemy then sends has nothing to do.
"""

from __future__ import annotations

import weakref
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, TwoPhaseTransaction, event
from sqlalchemy.orm import Session, SessionTransaction

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId
from txbroker import errors
from txbroker.client import blocking
from txbroker.client.loop.waiting import Waits, taken_back, waiting
from txbroker.databases.adapters.adapter import kind_of, run
from txbroker.databases.adapters.database import Condition
from txbroker.databases.blocking import Atomic
from txbroker.databases.orm.waiting_messages import (
    MAX_BYTES,
    Broker,
    Terms,
    block,
    check_room,
    commit_with,
)
from txbroker.databases.outbox.streams import Backlog
from txbroker.databases.outbox.terms import AUTO_MODE, OUTBOX_BYTES, OutboxTerms
from txbroker.databases.protocol import check_wait
from txbroker.databases.sqlalchemy.adapters import (
    check_sole,
    connection_of,
    connections,
    plain_session,
    refused_two_phase,
)
from txbroker.databases.sqlalchemy.driver import DriverDatabase
from txbroker.databases.tables.xids import check_application


def carry(
    sessions: Any,
    broker: Broker,
    *,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    max_bytes: int = MAX_BYTES,
    mode: str = AUTO_MODE,
    outbox_bytes: int = OUTBOX_BYTES,
    max_backlog: Backlog | None = None,
    on_refused: str = "move",
) -> Messages:
    """Have the commits of ``sessions`` carry messages. Call it once, when the program starts.

    ``sessions`` is a sessionmaker, a scoped_session, a class of Sessions or one Session. ``broker`` is a blocking
    connection, or a function that returns one in the process and thread that commits. The other arguments are those
    of :func:`txbroker.atomic`. Send with ``send(session, topic, value)`` of the result.
    """
    check_wait(wait)
    check_application(application)
    if not isinstance(broker, blocking.Connection) and not callable(broker):
        raise errors.Misuse(
            f"{kind_of(broker)} is neither a blocking connection to a broker, as txbroker.connect() gives, nor a "
            "function that returns one; nothing was done"
        )
    terms = OutboxTerms(mode, outbox_bytes, max_backlog, on_refused).check()
    messages = Messages(broker, Terms(application, wait, timeout, terms), max_bytes)
    event.listen(sessions, "after_begin", messages._after_begin)
    return messages


_CARRIERS = "txbroker_messages"


class _Carried:
    """The messages that a Connection's transaction carries, and those that it takes back, each with the savepoints in
    which that was asked for.
    """

    def __init__(self) -> None:
        self._sent: list[tuple[frozenset[str], Waits]] = []
        self.size = 0
        self.atomic: Atomic | None = None

    @property
    def messages(self) -> list[Waits]:
        """Return the messages in the order in which they were sent."""
        return [message for _, message in self._sent]

    def add(self, savepoints: frozenset[str], message: Waits) -> None:
        """Add a message."""
        self._sent.append((savepoints, message))
        self.size += message.size

    def drop(self, savepoint: str) -> None:
        """Drop the messages sent inside of a savepoint, or of one that was released inside of it."""
        self._sent = [each for each in self._sent if savepoint not in each[0]]
        self.size = sum(message.size for message in self.messages)

    def end(self) -> Atomic | None:
        """Drop all messages; return the block that was open."""
        atomic, self.atomic = self.atomic, None
        self._sent, self.size = [], 0
        return atomic


def messages_of(session: Any) -> Messages:
    """Return what carries messages with the commits of a Session; its transaction begins. Raises Misuse unless
    that is one.
    """
    session = plain_session(session)
    connection_of(
        session
    )  # the first thing that a Session tells its listeners is that its transaction begins
    found: list[Messages] = session.info.get(_CARRIERS, [])
    if len(found) != 1:
        raise errors.Misuse(
            f"{len(found)} calls of carry() were for this Session, and one must be, before its transaction begins; "
            "nothing was sent"
        )
    return found[0]


def _savepoints(connection: Connection) -> frozenset[str]:
    """Return the names of the open savepoints. (No public way has them: the event ``savepoint`` comes without a
    name.)
    """
    found, nested = set(), connection.get_nested_transaction()
    while nested is not None:
        found.add(nested._savepoint)
        nested = nested._previous_nested
    return frozenset(found)


class Messages:
    """The messages of Sessions, made by :func:`carry`. Threads may share it, unlike a Session."""

    def __init__(self, broker: Broker, terms: Terms, max_bytes: int) -> None:
        self._broker = broker
        self._terms = terms
        self._max_bytes = max_bytes
        self._carried: weakref.WeakKeyDictionary[Connection, _Carried] = weakref.WeakKeyDictionary()

    def send(
        self,
        session: Any,
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
        """Send a message with the Session's transaction: it waits in the program until the transaction commits.

        The arguments are those of ``Connection.send``; when it is due is fixed by this call. Raises BufferFull, and
        Misuse for a Session whose commit cannot carry.
        """
        self._add(session, waiting(topic, value, key, headers, partition, timestamp, id, tags, after, at))

    def cancel(
        self,
        session: Any,
        id: ScheduledId | str | None = None,
        *,
        message_id: str | bytes | None = None,
    ) -> None:
        """Take a scheduled message back with the Session's transaction, or all that wait with that id of their sender.

        The commit asks the broker, and is refused if the message does not wait then: it raises AlreadySent,
        ScheduleHeld or NotScheduled. Raises BufferFull and Misuse as :meth:`send`.
        """
        self._add(session, taken_back(id, message_id))

    def _add(self, session: Any, added: Waits) -> None:
        session = plain_session(session)
        if session.twophase:
            raise refused_two_phase()
        connection = connection_of(session)
        check_sole(session)
        carried = self._of(connection)
        check_room(carried.size, added, self._max_bytes)
        if carried.atomic is None and not connection.in_nested_transaction():
            atomic = block(DriverDatabase(connection), self._broker, self._terms)
            atomic.__enter__()
            carried.atomic = atomic
        carried.add(_savepoints(connection), added)

    def broker(self) -> blocking.Connection:
        """Return the connection that messages are sent with."""
        return self._broker if isinstance(self._broker, blocking.Connection) else self._broker()

    def waiting(self, session: Any) -> list[Waits]:
        """Return the messages that the Session's transaction would send, or take back, if it were committed now."""
        session = plain_session(session)
        if not session.in_transaction():
            return []
        carried = self._carried.get(connection_of(session))
        return [] if carried is None else carried.messages

    def _of(self, connection: Connection) -> _Carried:
        carried = self._carried.get(connection)
        if carried is None:
            raise errors.Misuse(
                "this Session is not one of those that carry() was told of, or its transaction began before: its "
                "commit would not carry the message; nothing was sent"
            )
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            raise refused_two_phase()
        return carried

    # -- events of Sessions ------------------------------------------------------------------------

    def _after_begin(self, session: Session, _: SessionTransaction, connection: Connection) -> None:
        if self not in (carriers := session.info.setdefault(_CARRIERS, [])):
            carriers.append(self)
        if any(
            found.messages for each in connections(session) if (found := self._carried.get(each)) is not None
        ):
            check_sole(session)
        if (
            connection not in self._carried
        ):  # a Connection that is older than the listener gets only some of an engine's events
            self._carried[connection] = _Carried()
            event.listen(connection, "rollback_savepoint", self._rollback_savepoint)
            event.listen(connection, "commit", self._commit)
            event.listen(connection, "rollback", self._rollback)
        dialect = connection.dialect
        if dialect.name != "sqlite" or dialect.is_async or connection.in_nested_transaction():
            return
        # sqlite3 begins by itself only before a change; until then the release of a savepoint would commit.
        if DriverDatabase(connection).condition() is Condition.IDLE:
            connection.exec_driver_sql("BEGIN")

    # -- events of Connections ---------------------------------------------------------------------

    def _rollback_savepoint(self, connection: Connection, name: str, _: None) -> None:
        self._carried[connection].drop(name)

    def _rollback(self, connection: Connection) -> None:
        """Drop the messages; this is called for lost and closed Connections, too."""
        carried = self._carried.get(connection)
        atomic = carried and carried.end()
        if atomic:
            run(atomic.deciding.rolled_back())

    def _commit(self, connection: Connection) -> None:
        messages = self._carried[connection].messages
        atomic = self._carried[connection].end()
        if not messages:
            if atomic is not None:
                run(atomic.deciding.rolled_back())
            return
        atomic = atomic or block(DriverDatabase(connection), self._broker, self._terms)
        try:
            commit_with(atomic, messages)
        except errors.OutcomeUnknown as error:
            connection.invalidate(error)  # nothing may go on with it, whatever its state
            raise
