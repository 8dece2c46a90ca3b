"""What a worker is asked for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from journal.arguments import seconds, text, whole, wrong_type, wrong_value
from txbroker.client.consumer.options import consumer_options
from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.errors import Misuse

NOTHING_DONE: Final = "nothing was done"
LEAST_AHEAD: Final = 32 << 10
MOST_AHEAD: Final = 2 << 20
"""Bytes that are read ahead: the least and the most of 1 KiB for each message that can be under way."""
LEAST_RUN: Final = 16
"""After so many messages of a partition it is another's turn, or after as many as can be under way."""
MOST_AT_ONCE: Final = 10_000
"""The largest concurrency, and the largest batch."""

Handler = Callable[..., Any]
Hook = Callable[[Any], Any]


class WorkOptions(NamedTuple):
    """How a worker works. ``stop_timeout`` and ``report_interval`` are in seconds.

    ``concurrency`` is how many calls of the handler run at the same time. ``order`` is "key" (messages of one key of a
    partition one after another, those without a key in parallel), "partition" (one call at a time for each partition)
    or None (all in parallel).

    ``transaction`` is None (the handler gets the message; it is finished after the handler has returned), "broker" (the
    handler gets the message and a transaction of the broker, with which the message is finished), or a function that
    opens a connection to a database (the handler gets the message, a block of ``txbroker.atomic``, and the connection).
    With ``batch`` above 1 it gets a list of up to so many messages of one partition: those that are here, it is not
    waited for more.

    ``retry`` is how the group tries a message again whose handler raises: True (as its policy says; it gets the usual
    one if it has none), a :class:`RetryPolicy` (GroupSettingsConflict if it has another one), or False: the worker ends
    with that exception, and the message stays unfinished. After a batch, each of its messages is handled alone before
    one counts as failed.

    ``handler_timeout`` is how long one call of the handler may take (None: for ever). After that its messages have
    failed; on an event loop the call is cancelled, and a worker with threads, which cannot be ended, stops with
    HandlerTimedOut.

    ``stop_timeout`` is how long a stop waits for calls that are under way. ``on_start`` and ``on_stop`` are
    called with the connection before the first message is read, and after the last one. Throughput, failures and lag
    are logged every ``report_interval``.
    """

    concurrency: int = 1
    order: str | None = "key"
    transaction: Any = None
    batch: int = 1
    retry: RetryPolicy | bool = True
    handler_timeout: float | None = 1800.0
    stop_timeout: float = 30.0
    on_start: Hook | None = None
    on_stop: Hook | None = None
    report_interval: float = 60.0


class Job(NamedTuple):
    """What a worker does: for which group it reads which topics, what handles the messages, and how.

    ``reading`` are further fields of :class:`ConsumerOptions`.
    """

    topics: str | Sequence[str]
    group: str
    handler: Handler
    options: WorkOptions
    reading: dict[str, Any]


def checked_job(topics: Any, group: Any, handler: Any, choices: dict[str, Any], pools: bool = False) -> Job:
    """Return the job; ``choices`` are fields of WorkOptions and ConsumerOptions. Raises WrongType, WrongValue, Misuse.

    ``pools``: ``transaction`` may not be a function, but a pool of Twisted's adbapi.
    """
    own = {name: choices.pop(name) for name in WorkOptions._fields if name in choices}
    options = WorkOptions(**own)
    group = text("group", group, NOTHING_DONE)
    if not group:
        raise wrong_value("group", group, "the name of a group", NOTHING_DONE)
    if not callable(handler):
        raise wrong_type("handler", handler, "a function", NOTHING_DONE)
    options = _checked(options, pools)
    if choices.get("auto_done"):
        raise _finishes_itself("auto_done")
    if choices.get("commit_interval") and options.transaction is not None:
        raise _finishes_itself("commit_interval")
    reading = {**_read_ahead(options), **choices, "order": options.order, "retry": options.retry}
    consumer_options(topics, group, **reading)
    return Job(topics, group, handler, options, reading)


def _finishes_itself(name: str) -> Misuse:
    return Misuse(
        f"{name}= in a worker: it finishes messages by itself, those of a transaction with that, and others at once or "
        f"after commit_interval=; {NOTHING_DONE}"
    )


def _read_ahead(options: WorkOptions) -> dict[str, int]:
    """Return how much is read ahead: little, because what comes later waits behind it; but a batch of each partition,
    or they could not take turns.
    """
    at_once = options.concurrency * options.batch
    prefetch = min(max(LEAST_AHEAD, at_once << 10), MOST_AHEAD)
    return {"max_run": max(LEAST_RUN, at_once), "prefetch": prefetch, "max_bytes": MOST_AHEAD}


def _checked(options: WorkOptions, pools: bool) -> WorkOptions:
    concurrency, batch = (
        whole(name, getattr(options, name), NOTHING_DONE, least=1, most=MOST_AT_ONCE)
        for name in ("concurrency", "batch")
    )
    _check_transaction(options.transaction, pools)
    for name in ("on_start", "on_stop"):
        hook = getattr(options, name)
        if hook is not None and not callable(hook):
            raise wrong_type(name, hook, "None or a function", NOTHING_DONE)
    interval = seconds("report_interval", options.report_interval, NOTHING_DONE)
    if not interval:
        raise wrong_value("report_interval", interval, "more than 0", NOTHING_DONE)
    stop_timeout = seconds("stop_timeout", options.stop_timeout, NOTHING_DONE)
    if options.handler_timeout is not None and not seconds(
        "handler_timeout", options.handler_timeout, NOTHING_DONE
    ):
        raise wrong_value("handler_timeout", options.handler_timeout, "more than 0, or None", NOTHING_DONE)
    return options._replace(
        concurrency=concurrency, batch=batch, stop_timeout=stop_timeout, report_interval=interval
    )


def _check_transaction(given: Any, pools: bool) -> None:
    opens = (
        "a pool of twisted.enterprise.adbapi" if pools else "a function that opens a connection to a database"
    )
    known = f"None, 'broker', or {opens}"
    if isinstance(given, str):
        if given != "broker":
            raise wrong_value("transaction", given, known, NOTHING_DONE)
    elif given is not None and not (hasattr(given, "runWithConnection") if pools else callable(given)):
        raise wrong_type("transaction", given, known, NOTHING_DONE)
