"""How an application sends: with the transaction that is open, if there is one, else to the broker as always."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from celery.app.amqp import AMQP, Queues
from kombu import Queue

from txbroker.celery.channel import TransactionProducer
from txbroker.celery.destinations import current
from txbroker.celery.leases import leased


class LeasedQueues(Queues):
    """Queues whose deliveries come with leases."""

    def __setitem__(self, name: str, queue: Queue) -> None:
        super().__setitem__(name, leased(queue))


class TransactionalAMQP(AMQP):
    """Joins what is sent to transactions: ``Celery("shop", amqp="txbroker.celery:TransactionalAMQP")``.

    Whatever an application sends, by ``delay()``, ``apply_async()`` or ``send_task()``, goes with Django's transaction
    if it is sent inside of ``transaction.atomic()``, with another one inside of :func:`txbroker.celery.joined`, and to
    the broker at once elsewhere. Its workers have leases for what they consume.
    """

    queues_cls = LeasedQueues

    @cached_property
    def send_task_message(self) -> Any:
        """The function that sends a task's message."""
        send = self._create_task_sender()

        def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
            if not isinstance(producer, TransactionProducer):
                destination = current()
                if destination is not None:
                    producer = TransactionProducer(self.app, destination)
            if isinstance(producer, TransactionProducer):
                options["retry"] = False
            return send(producer, name, message, **options)

        return send_task_message
