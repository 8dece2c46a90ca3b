"""A task whose acknowledgement commits with its rows and with the tasks that it sends.

Its delivery is taken over from the worker by this process's own connection, so that what the worker's main process says
of it later changes nothing. It is acknowledged by the transaction that commits the rows; with the end of this process
before that it is returned to its queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from celery import Task
from celery.canvas import maybe_signature
from celery.exceptions import Ignore, Reject, Retry
from kombu.utils.imports import symbol_by_name

from txbroker import errors
from txbroker.celery.destinations import DJANGO_DATABASE, Destination, destination_of, going_to
from txbroker.celery.leases import LEASE, lease_of
from txbroker.celery.process_connection import broker_of, django_messages
from txbroker.celery.transactional_amqp import TransactionalAMQP
from txbroker.client.blocking import Connection
from txbroker.client.core.results import QUEUE_PREFIX, Message
from txbroker.client.queues.publishing import Publishes
from txbroker.databases.blocking import atomic

PAUSE: Final = 1.0
"""Seconds for which a delivery without a lease is kept before it is returned, or it would come again at once."""
_log = logging.getLogger("txbroker.celery")
_UNDECIDED: Final = (
    errors.DeliveryLost,
    errors.TransactionRolledBack,
    errors.StorageUnavailable,
    errors.OutcomeUnknown,
    errors.ConnectionClosed,
    TimeoutError,
)
"""Errors of the broker or the way to it, not of the task: the message comes again, unless it was committed."""


class TransactionalTask(Task):
    """A base class: ``@app.task(base=TransactionalTask, bind=True)``, or ``Celery(…, task_cls=TransactionalTask)``.

    The body runs inside of ``transaction.atomic()`` if the program uses Django with ``txbroker.databases.django``, else
    in a block of ``txbroker.atomic`` with what :meth:`database` returns, or in a transaction of the broker if that is
    None. What it sends by ``delay()`` goes with that, as do its links and the rest of its chain.
    """

    abstract = True
    acks_late = True
    acks_on_failure_or_timeout = False
    reject_on_worker_lost = True
    return_after: float = 1.0
    """Seconds after which the message of a task that has failed comes again."""
    using = DJANGO_DATABASE
    """The alias of Django's database in whose transaction the task runs."""

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Refuse settings with which the worker would acknowledge by itself; raises Misuse."""
        for name, needed in (("acks_late", True), ("reject_on_worker_lost", True)):
            if getattr(cls, name) is not needed:
                raise errors.Misuse(
                    f"task {cls.name}: {name} is {getattr(cls, name)!r}, and a TransactionalTask needs {needed}: "
                    "leave it to the class"
                )
        if not issubclass(symbol_by_name(app.amqp_cls), TransactionalAMQP):
            raise errors.Misuse(
                f"task {cls.name}: its application must send with transactions, or its retries and links would not be "
                'part of them: make it with Celery(…, amqp="txbroker.celery:TransactionalAMQP")'
            )
        super().on_bound(app)

    # -- for programs ------------------------------------------------------------------------------

    def database(self) -> Any:
        """Return the database connection for one run: what ``txbroker.atomic`` takes, such as ``psycopg.connect(…)`` or
        a Session of SQLAlchemy; None for a task that writes to no database. It is called in the worker's process,
        before each run, and :meth:`release` after it.
        """

    def release(self, database: Any) -> None:
        """Do with a connection what is to be done after a run: close it, unless this is overridden."""
        database.close()

    @property
    def tx(self) -> Any:
        """The block that commits with this run: it has ``send``, ``publish``, and ``celery``. Raises Misuse outside."""
        run = _running.get()
        if run is None:
            raise errors.Misuse(
                f"{self.name} is not run by a worker, so it has no transaction; nothing was sent"
            )
        return run.tx

    @property
    def connection(self) -> Any:
        """The database connection of this run, as :meth:`database` has returned it. Raises Misuse outside."""
        run = _running.get()
        if run is None:
            raise errors.Misuse(f"{self.name} is not run by a worker, so it has no database connection")
        return run.database

    def retry(self, *args: Any, **options: Any) -> Any:
        """Retry, as ``Task.retry`` does. The rows of this run are rolled back; the new message and the acknowledgement
        of this one are one transaction.
        """
        run = _running.get()
        if run is None:
            return super().retry(*args, **options)
        try:
            with going_to(Destination(run.hold, run.destination.broker)):
                return super().retry(*args, **options)
        except Reject as error:  # it could not be sent; rejected, the task would be gone
            raise error.reason from error

    # -- for the worker ----------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task: Celery calls this in a worker, with the delivery as :attr:`request`."""
        request = self.request
        if request.called_directly or getattr(request, _BEGUN, False):
            return super().__call__(*args, **kwargs)
        setattr(request, _BEGUN, True)
        if request.is_eager:
            with self._block([]) as run:
                value = self._done(args, kwargs)
                run.send_held()
            return value
        broker = broker_of(self.app)
        message = self._taken_over(broker, request)
        held = list[tuple[Any, ...]]()
        try:
            with self._block(held) as run:
                ignored: Ignore | None = None
                value = None
                try:
                    value = self._done(args, kwargs)
                except Ignore as error:
                    ignored = error
                run.send_held()
                run.acknowledge(message)
            if ignored is not None:
                raise ignored
            return value
        except Ignore:
            raise
        except Retry:
            self._retried(broker, message, held)
            raise
        except Reject as error:
            self._returned(broker, message, requeue=error.requeue)
            raise
        except _UNDECIDED as error:
            raise Reject(error, requeue=True) from error
        except Exception as error:
            if self.acks_on_failure:
                self._finished(broker, message)
            else:
                self._returned(broker, message, requeue=True, why=f"{type(error).__name__}: {error}"[:200])
            raise

    def _taken_over(self, broker: Connection, request: Any) -> Message:
        lease = lease_of(request)
        if lease is None:
            time.sleep(PAUSE)
            raise Reject(
                errors.Misuse(
                    f"the delivery of task {self.name}[{request.id}] has no lease, so that it cannot be acknowledged "
                    f"with a row; it is returned. Give its queue the consumer argument {LEASE}, as TransactionalAMQP "
                    "and txbroker.celery.leased(queue) do; and the broker must be txbroker"
                ),
                requeue=True,
            )
        try:
            return broker.take_over(lease)
        except _UNDECIDED as error:
            raise Reject(error, requeue=True) from error

    @contextmanager
    def _block(self, held: list[tuple[Any, ...]]) -> Iterator[_Run]:
        """Open what the run is committed with, and have what it sends go with that."""
        if (django := django_messages()) is not None:
            from django.db import transaction

            with (
                transaction.atomic(using=self.using),
                self._within(_DjangoBlock(django, self.using), held) as run,
            ):
                yield run
        elif (database := self.database()) is None:
            with broker_of(self.app).transaction() as tx, self._within(tx, held) as run:
                yield run
        else:
            with self._released(database):
                block = atomic(database, broker_of(self.app), application=self.app.main or "")
                with block, self._within(block, held, database) as run:
                    yield run

    @contextmanager
    def _released(self, database: Any) -> Iterator[None]:
        try:
            yield
        finally:
            self.release(database)

    @contextmanager
    def _within(self, tx: Any, held: list[tuple[Any, ...]], database: Any = None) -> Iterator[_Run]:
        run = _Run(tx, held, database)
        token = _running.set(run)
        try:
            with going_to(run.destination):
                yield run
        finally:
            _running.reset(token)

    def _done(self, args: Any, kwargs: Any) -> Any:
        """Run the body, and send what follows it."""
        value = self.run(*args, **kwargs)
        request = self.request
        callbacks, chain = request.callbacks, request.chain
        given = {"parent_id": request.id, "root_id": request.root_id or request.id}
        if self.app.conf.task_inherit_parent_priority and request.delivery_info:
            given["priority"] = request.delivery_info.get("priority")
        for each in callbacks or ():
            maybe_signature(each, app=self.app).apply_async((value,), **given)
        if chain:
            maybe_signature(chain[-1], app=self.app).apply_async((value,), chain=chain[:-1], **given)
        request.callbacks = request.chain = None  # else Celery sends them again, after the commit
        return value

    def _retried(self, broker: Connection, message: Message, held: list[tuple[Any, ...]]) -> None:
        """Have the new message and the acknowledgement be one."""
        try:
            with broker.transaction() as tx:
                for send, each in held:
                    tx.send(*send, **each)
                tx.ack(message)
        except _UNDECIDED as error:
            raise Reject(error, requeue=True) from error

    def _finished(self, broker: Connection, message: Message) -> None:
        with self._settling(), broker.queue(message.topic.removeprefix(QUEUE_PREFIX)) as queue:
            queue.ack(message)

    def _returned(self, broker: Connection, message: Message, requeue: bool, why: str = "") -> None:
        after = self.return_after if requeue else None
        with self._settling(), broker.queue(message.topic.removeprefix(QUEUE_PREFIX)) as queue:
            queue.nack(message, requeue, after=after, why=why)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except (errors.TxBrokerError, TimeoutError) as error:
            _log.warning("a delivery of task %s is returned by the broker: %s", self.name, error)


_BEGUN: Final = "txbroker_begun"
"""The mark of a request whose body runs: a call of the task from there is a call of a function."""


class _Run:
    """A run of a task's body."""

    def __init__(self, tx: Any, held: list[tuple[Any, ...]], database: Any) -> None:
        self.tx, self.database = tx, database
        self._held = held
        self.destination = destination_of(tx)

    def hold(self, *args: Any, **options: Any) -> None:
        """Keep what a retry sends."""
        self._held.append((args, options))

    def send_held(self) -> None:
        """Send what was kept: the task has ended well all the same."""
        for args, options in self._held:
            self.tx.send(*args, **options)
        self._held.clear()

    def acknowledge(self, message: Message) -> None:
        """Acknowledge with the block."""
        self.tx.ack(message)


class _DjangoBlock(Publishes):
    """A transaction of Django's as a block."""

    def __init__(self, django: Any, alias: str) -> None:
        self._django, self._alias = django, alias

    @property
    def destination(self) -> Destination:
        """Where its tasks go."""
        return destination_of(self._alias)

    def send(self, topic: str, value: bytes | None, *args: Any, **options: Any) -> None:
        """Send with Django's transaction."""
        self._django.send(topic, value, *args, using=self._alias, **options)

    def ack(self, message: Message) -> None:
        """Acknowledge with Django's transaction."""
        self._django.ack(message, using=self._alias)


_running: ContextVar[_Run | None] = ContextVar("txbroker_celery_run", default=None)
