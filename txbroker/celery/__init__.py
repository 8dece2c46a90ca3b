"""Celery: tasks that are sent with a row, and tasks whose acknowledgement commits with the row. See docs/celery.md."""

from __future__ import annotations

try:
    import celery as _celery  # noqa: F401 - to say what is missing
except ImportError as error:
    raise ImportError(
        f"txbroker.celery needs Celery, which is not installed ({error}): pip install 'txbroker[celery]'"
    ) from error

from txbroker.celery.destinations import joined
from txbroker.celery.leases import leased
from txbroker.celery.process_connection import broker_of
from txbroker.celery.sending import Tasks
from txbroker.celery.transactional_amqp import TransactionalAMQP
from txbroker.celery.transactional_task import TransactionalTask

__all__ = ["Tasks", "TransactionalAMQP", "TransactionalTask", "broker_of", "joined", "leased"]
