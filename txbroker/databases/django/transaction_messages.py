"""``send`` for Django: messages wait in Django's list of on-commit functions, and its ``commit()`` carries them.

Django keeps, for ``transaction.on_commit``, which functions were registered in which savepoints, and drops those of a
savepoint that is rolled back: messages are entries of that list. Django has no hook *before* COMMIT. All its ways to
commit (``transaction.atomic``, requests, ``transaction.commit``) call ``connection.commit()``, whatever the backend. So
that one method is replaced on the connection when the first message is sent through it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId
from txbroker import errors
from txbroker.client.core.results import Message
from txbroker.client.loop.waiting import Waits, taken_back
from txbroker.client.loop.waiting import waiting as message_waiting
from txbroker.databases.adapters import adapter
from txbroker.databases.adapters.adapter import run
from txbroker.databases.adapters.database import Connector
from txbroker.databases.blocking import Atomic
from txbroker.databases.django.broker import broker, configuration
from txbroker.databases.orm.waiting_messages import block, check_room, commit_with
from txbroker.databases.orm.wrapped import WrappedDatabase

_BLOCK = "_txbroker_block"
_HOOKED = "_txbroker_hooked"
_SIZE = "_txbroker_size"


class _Entry:
    """A message in Django's list, or one to be taken back. That has been done when Django calls the entry, after the
    commit.
    """

    def __init__(self, message: Waits) -> None:
        self.message = message

    def __call__(self) -> None:
        """Do nothing."""


class _Begun:
    """An entry which shows that the block was entered in this transaction: a rollback removes it, as all others."""

    def __call__(self) -> None:
        """Do nothing."""


def send(
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
    using: str = DEFAULT_DB_ALIAS,
) -> None:
    """Send a message with the transaction of database ``using``: it waits in the program until that commits.

    When it is due, if it is sent later, is fixed by this call. Raises Misuse outside ``transaction.atomic()``,
    BufferFull. Refusals of the broker are raised at the commit.
    """
    connection = _in_transaction(using)
    _add(
        connection,
        using,
        message_waiting(topic, value, key, headers, partition, timestamp, id, tags, after, at),
    )


def cancel(
    id: ScheduledId | str | None = None,
    *,
    message_id: str | bytes | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> None:
    """Take a scheduled message back with the transaction of ``using``, or all that wait with that id of their sender.

    The commit asks the broker, and is refused if the message does not wait then: it raises AlreadySent, ScheduleHeld or
    NotScheduled, and the database is rolled back. Raises Misuse outside ``transaction.atomic()``, BufferFull.
    """
    _add(_in_transaction(using), using, taken_back(id, message_id))


def _add(connection: Any, using: str, added: Waits) -> None:
    size, bound = getattr(connection, _SIZE, 0), configuration().max_bytes
    if (
        size + added.size > bound
    ):  # it still counts messages that were rolled back, and those of earlier transactions
        size = sum(each.size for each in waiting(using=using))
        check_room(size, added, bound)
    _prepare(connection)
    connection.on_commit(_Entry(added))
    setattr(connection, _SIZE, size + added.size)


def receive(
    topics: str | Sequence[str],
    group: str,
    timeout: float | None = None,
    *,
    using: str = DEFAULT_DB_ALIAS,
    **choices: Any,
) -> Message | None:
    """Return a group's next message, received with the transaction of ``using``; see ``Transaction.receive``.

    Raises Misuse in a savepoint, because its rollback would not give the message back.
    """
    connection = _in_transaction(using)
    if _in_savepoint(connection):
        raise errors.Misuse(
            "receive() inside of a nested atomic(): a savepoint that is rolled back cannot give the message back. Call "
            "it in the outermost one; nothing was received"
        )
    _prepare(connection)
    block_of: Atomic = getattr(connection, _BLOCK)
    return block_of.receive(topics, group, timeout, **choices)


def ack(message: Message | Sequence[Message], *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Acknowledge a message of a queue that :func:`broker` has, or each of a list, with the transaction of ``using``.

    Raises Misuse in a savepoint, because its rollback would not give the message back.
    """
    connection = _in_transaction(using)
    if _in_savepoint(connection):
        raise errors.Misuse(
            "ack() inside of a nested atomic(): a savepoint that is rolled back cannot give the message back. Call it "
            "in the outermost one; nothing was acknowledged"
        )
    _prepare(connection)
    block_of: Atomic = getattr(connection, _BLOCK)
    block_of.ack(message)


def waiting(*, using: str = DEFAULT_DB_ALIAS) -> list[Waits]:
    """Return the messages that would be sent, or taken back, if the transaction of ``using`` were committed now.

    Meant for tests.
    """
    return [func.message for _, func, *_ in connections[using].run_on_commit if isinstance(func, _Entry)]


def _in_transaction(using: str) -> Any:
    connection = connections[using]
    if not connection.in_atomic_block:
        raise errors.Misuse(
            f"no transaction.atomic() is open for the database {using!r}, so there is no commit to carry a message: "
            "nothing was sent. Open one, or send without a transaction: txbroker.databases.django.broker().send()"
        )
    connection.validate_thread_sharing()
    return connection


def _in_savepoint(connection: Any) -> bool:
    return any(sid is not None for sid in connection.savepoint_ids)


def _prepare(connection: Any) -> None:
    """Replace ``commit``, and begin the block if this is the outermost level: in a savepoint the mark could be lost."""
    if not getattr(connection, _HOOKED, False):
        setattr(connection, _HOOKED, True)
        connection.commit = functools.partial(_commit, connection, connection.commit)
    if not _has_begun(connection) and not _in_savepoint(connection):
        _forget(connection)
        try:
            begun = block(DjangoDatabase(connection), broker, configuration().terms)
            with connection.wrap_database_errors:
                begun.__enter__()
        except BaseException:
            connection.needs_rollback = True  # in case the program catches this and goes on
            raise
        setattr(connection, _BLOCK, begun)
        connection.on_commit(_Begun())


def _has_begun(connection: Any) -> bool:
    return any(isinstance(func, _Begun) for _, func, *_ in connection.run_on_commit)


def _forget(connection: Any) -> None:
    """Drop a block whose transaction was rolled back without a notice."""
    old: Atomic | None = getattr(connection, _BLOCK, None)
    setattr(connection, _BLOCK, None)
    if old is not None:
        run(old.deciding.rolled_back())


def _commit(connection: Any, commit: Any) -> None:
    """Commit; this replaces ``connection.commit()``."""
    connection.validate_no_atomic_block()
    messages = [func.message for _, func, *_ in connection.run_on_commit if isinstance(func, _Entry)]
    begun: Atomic | None = getattr(connection, _BLOCK, None) if _has_begun(connection) else None
    if begun is None:
        _forget(connection)
        if not messages:
            commit()
            return
        begun = block(DjangoDatabase(connection), broker, configuration().terms)
    setattr(connection, _BLOCK, None)
    database = begun.database
    assert isinstance(database, DjangoDatabase)
    database.django_commit = commit
    try:
        with connection.wrap_database_errors:
            commit_with(begun, messages)
    except errors.OutcomeUnknown:
        # Django would go on with the connection, and show that error instead.
        connection.close()
        connection.closed_in_transaction = True
        raise


class DjangoDatabase(WrappedDatabase):
    """The driver's connection below Django's wrapper, which commits and rolls back."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        connection.ensure_connection()
        self.driver = adapter.adapt(connection.connection)
        self.handle: object = connection.connection
        self.django_commit: Any = connection.commit

    async def commit(self) -> None:
        """Have Django commit."""
        self.django_commit()

    async def rollback(self) -> None:
        """Have Django roll back, which drops its on-commit functions. Inside of atomic() it would not."""
        if self.connection.in_atomic_block:
            await self.driver.rollback()
        else:
            self.connection.rollback()

    async def close(self) -> None:
        """Have Django close the connection: inside of atomic() the program can then only leave the block."""
        self.connection.close()

    def did_not_commit(self, error: BaseException) -> bool:
        """Return what the driver knows, by its own error below Django's."""
        below = error.__cause__
        return self.driver.did_not_commit(error if below is None else below)

    def connector(self) -> Connector:
        """Return a connector with Django's parameters, and without its settings."""
        return connector(self.connection)


def connector(connection: Any) -> Connector:
    """Return a function that opens the driver's connections to the same database, past Django's pool, if there
    is one.
    """
    if connection.settings_dict.get("OPTIONS", {}).get("pool"):
        connection.ensure_connection()
        found = adapter.adapt(connection.connection).connector()
        assert found is not None
        return found
    wrapper = connection.copy()

    def connect() -> Any:
        return wrapper.get_new_connection(wrapper.get_connection_params())

    return connect
