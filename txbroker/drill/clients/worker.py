"""The role ``worker`` is a worker of a group: its handler sends a message in the transaction, and fails if it is to."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from txbroker.client.blocking.transaction import Transaction
from txbroker.client.core.results import Message
from txbroker.drill.clients.fate import failures_of
from txbroker.drill.clients.ledger import Began, Call
from txbroker.drill.clients.life import Life
from txbroker.drill.clients.messages import identity_of, value_of
from txbroker.drill.clients.reader import checksum_of
from txbroker.drill.plan.plan import HANDLED, POLICY, TASKS
from txbroker.worker.blocking import Worker

CONCURRENCY: Final = 4
LONGEST: Final = 0.01
"""Seconds that a call of the handler takes at most, beside what it asks the broker for."""

MAX_HANDOVER: Final = 5.0
LOOK: Final = 0.1
"""Seconds between two looks whether the life goes on."""


class OnPurpose(Exception):
    """The handler fails because it is to."""


def work(life: Life) -> None:
    """Run the role ``worker``: each message of the tasks has its effect exactly once, over all deaths."""
    logging.getLogger("txbroker.worker").addFilter(_is_news)
    connection = life.connect()
    worker = connection.work(
        life.plan.topic(TASKS),
        life.plan.work_group,
        Handler(life),
        concurrency=CONCURRENCY,
        order="key",
        transaction="broker",
        retry=POLICY,
        session_timeout=life.plan.session_timeout,
        max_handover=MAX_HANDOVER,
    )
    threading.Thread(target=_stop_in_time, args=[life, worker], name="drill's end", daemon=True).start()
    worker.run()
    life.drop(connection)


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of the worker's log is about something else than a failure on purpose."""
    return not (record.exc_info and isinstance(record.exc_info[1], OnPurpose))


def _stop_in_time(life: Life, worker: Worker) -> None:
    while life.goes_on():
        time.sleep(LOOK)
    worker.stop()


class Handler:
    """The handler of a worker; several threads call it at the same time."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._lock = threading.Lock()

    def __call__(self, message: Message, tx: Transaction) -> None:
        """Note the call in the ledger, send its message, and fail if it is to: then nothing of it may be left."""
        life, plan = self._life, self._life.plan
        place = plan.layout.index((message.topic, message.partition))
        sink = plan.layout.index((plan.topic(HANDLED), message.partition))
        identity = identity_of(message.value)
        failures = (
            0 if identity is None else failures_of(identity.sender, identity.operation, identity.number)
        )
        key = (message.key or b"").decode("utf-8", "replace")
        call = Call(
            place=place,
            offset=message.offset,
            generation=message.generation,
            attempts=message.attempts,
            checksum=checksum_of(message.value),
            fails=message.attempts < failures,
        )
        with self._lock:
            operation = life.next_operation()
            made = life.identity(operation, 0, 1)
            seconds, sends = life.chance.uniform(0.0, LONGEST), life.chance.random() < 0.8 or not call.fails
            life.ledger.write(Began(operation=operation, places=[sink], together=True, keys=[key], call=call))
        if sends:
            labels = message.key, {"place": b"%d" % sink}
            tx.send(plan.topic(HANDLED), value_of(made), *labels, partition=message.partition)
        time.sleep(seconds)
        if call.fails:
            raise OnPurpose(f"attempt {message.attempts + 1} of {failures} that fail")
