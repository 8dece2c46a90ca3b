"""Where tasks go that are sent with something: a transaction, a block of ``atomic``, or the commit of a Session or of
Django.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from txbroker.celery.process_connection import django_messages
from txbroker.client.blocking import Connection
from txbroker.client.blocking.transaction import Transaction
from txbroker.databases.adapters.adapter import kind_of
from txbroker.databases.blocking import Atomic, BlockingSide
from txbroker.errors import Misuse

DJANGO_DATABASE = "default"


class Destination(NamedTuple):
    """``send`` has the arguments of ``Transaction.send``; ``broker`` returns the connection that declares queues."""

    send: Callable[..., object]
    broker: Callable[[], Connection]


_current: ContextVar[Destination | None] = ContextVar("txbroker_celery_destination", default=None)


def current() -> Destination | None:
    """Return where a task goes that is sent now; None if it goes to the broker at once."""
    found = _current.get()
    if found is None and (django := django_messages()) is not None:
        from django.db import connections

        if connections[DJANGO_DATABASE].in_atomic_block:
            return of_django(django, DJANGO_DATABASE)
    return found


@contextmanager
def going_to(destination: Destination) -> Iterator[None]:
    """Have the tasks go there that are sent inside of this block, in this thread or coroutine."""
    token = _current.set(destination)
    try:
        yield
    finally:
        _current.reset(token)


def joined(transaction: Any) -> Any:
    """Return a context manager: what is sent in it by ``delay()``, ``apply_async()`` and ``send_task()`` goes with a
    transaction.

    ``transaction`` is a Session of SQLAlchemy whose commits carry messages (``txbroker.databases.sqlalchemy.carry``), a
    block of ``txbroker.atomic``, a transaction of the blocking client, or the alias of one of Django's databases. The
    application must have been made with ``amqp="txbroker.celery:TransactionalAMQP"``. Raises Misuse.
    """
    return going_to(destination_of(transaction))


def destination_of(transaction: Any) -> Destination:
    """Return where the tasks of a transaction go; raises Misuse."""
    if isinstance(transaction, Transaction):
        return Destination(transaction.send, lambda: connection_of(transaction))
    if isinstance(transaction, Atomic) and isinstance(transaction._side, BlockingSide):
        side = transaction._side
        return Destination(transaction.send, lambda: side.connection)
    if isinstance(found := getattr(transaction, "destination", None), Destination):
        return found
    if isinstance(transaction, str):
        if (django := django_messages()) is None:
            raise Misuse(
                f"{transaction!r} can only be the alias of a database of Django's, and 'txbroker.databases.django' is "
                "not in INSTALLED_APPS, or Django is not set up; nothing was sent"
            )
        return of_django(django, transaction)
    if hasattr(transaction, "get_bind"):
        from txbroker.databases.sqlalchemy.session_messages import messages_of

        messages = messages_of(transaction)
        return Destination(functools.partial(messages.send, transaction), messages.broker)
    raise Misuse(
        f"{kind_of(transaction)} cannot carry tasks: it must be a blocking transaction or block of txbroker.atomic, a "
        "Session of SQLAlchemy, or the alias of a database of Django's; nothing was sent"
    )


def of_django(django: Any, alias: str) -> Destination:
    """Return where tasks go that are sent with the transaction of one of Django's databases."""
    return Destination(functools.partial(django.send, using=alias), django.broker)


def connection_of(transaction: Transaction) -> Connection:
    """Return the connection of a transaction; raises Misuse for one that is no blocking client's."""
    connection = transaction._connection
    if not isinstance(connection, Connection):
        raise Misuse(f"{kind_of(connection)} is no blocking connection to a broker; nothing was sent")
    return connection
