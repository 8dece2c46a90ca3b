"""``tx.celery(app)``: tasks that are sent with a transaction."""

from __future__ import annotations

from typing import Any

from celery.canvas import Signature, maybe_signature
from celery.result import AsyncResult

from txbroker.celery.channel import TransactionProducer
from txbroker.celery.destinations import Destination, destination_of, going_to


class Tasks:
    """Sends the tasks of an application with a transaction: they are in their queues once it commits, or never."""

    def __init__(self, app: Any, transaction: Any) -> None:
        self._app = app
        self.destination: Destination = destination_of(transaction)
        self.producer = TransactionProducer(app, self.destination)

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> AsyncResult:
        """Send a task by its name; arguments and result are those of ``Celery.send_task``."""
        return self._sent(self._app.send_task, name, args, kwargs, options)

    def apply_async(self, task: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send a task, or a signature with what follows; arguments and result are those of ``Task.apply_async``.

        The parts of a chord go with the transaction if the application was made with ``TransactionalAMQP``.
        """
        if isinstance(task, Signature) and task._app is None:
            task = maybe_signature(task, app=self._app)
        return self._sent(task.apply_async, args, kwargs, options)

    def _sent(self, send: Any, *arguments: Any) -> Any:
        *positional, options = arguments
        with going_to(self.destination):
            return send(*positional, producer=self.producer, **{**options, "retry": False})
