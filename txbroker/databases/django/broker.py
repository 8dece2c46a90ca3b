"""The broker's connection of this process, made from ``settings.TXBROKER`` when it is first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from txbroker.client.blocking import Connection, connect
from txbroker.databases.orm.waiting_messages import MAX_BYTES, Terms
from txbroker.databases.outbox.streams import Backlog
from txbroker.databases.outbox.terms import AUTO_MODE, OUTBOX_BYTES, OutboxTerms
from txbroker.databases.protocol import check_wait
from txbroker.databases.tables.xids import check_application

NAMES = (
    "url", "application", "wait", "timeout", "max_bytes", "options",
    "mode", "outbox_bytes", "max_backlog", "on_refused",
)  # fmt: skip


class Configuration(NamedTuple):
    """``settings.TXBROKER``: a mapping with ``url``, the names of arguments of :func:`txbroker.atomic`, and others.

    All but ``url`` may be left out: ``application``, ``wait``, ``timeout``, ``mode``, ``outbox_bytes``,
    ``max_backlog`` (a mapping with ``rows``, ``bytes`` and ``age``, or some of them) and ``on_refused`` as in
    :func:`txbroker.atomic`, ``max_bytes`` of messages that wait for a commit, and ``options``, further arguments of
    :func:`txbroker.connect`.
    """

    url: str
    terms: Terms
    max_bytes: int
    options: Mapping[str, Any]


def configuration() -> Configuration:
    """Read the settings; raises ImproperlyConfigured."""
    found = getattr(settings, "TXBROKER", None)
    if not isinstance(found, Mapping) or not found.get("url"):
        raise ImproperlyConfigured(
            'settings.TXBROKER is missing: TXBROKER = {"url": "tcp:127.0.0.1:7654", "application": "shop"}'
        )
    if unknown := sorted(set(found) - set(NAMES)):
        raise ImproperlyConfigured(f"settings.TXBROKER: {unknown} are not known; {list(NAMES)} are")
    outbox = OutboxTerms(
        found.get("mode", AUTO_MODE),
        found.get("outbox_bytes", OUTBOX_BYTES),
        _backlog(found.get("max_backlog")),
        found.get("on_refused", "move"),
    ).check()
    terms = Terms(found.get("application", ""), found.get("wait", "decision"), found.get("timeout"), outbox)
    check_application(terms.application)
    check_wait(terms.wait)
    return Configuration(found["url"], terms, found.get("max_bytes", MAX_BYTES), found.get("options", {}))


def _backlog(given: Any) -> Backlog | None:
    """Return the bounds that a mapping has, which needs no import in a file of settings."""
    if given is None or isinstance(given, Backlog):
        return given
    if not isinstance(given, Mapping) or (set(given) - set(Backlog._fields)):
        raise ImproperlyConfigured(
            f"settings.TXBROKER: max_backlog is a mapping with some of {list(Backlog._fields)}, not {given!r:.80}"
        )
    return Backlog(**given)


_lock = threading.Lock()
_open: dict[str, Connection] = {}


def broker() -> Connection:
    """Return the connection, shared by the threads of this process; a forked child gets its own."""
    wanted = configuration()
    with _lock:
        connection = _open.get(wanted.url)
        if connection is None:
            connection = _open[wanted.url] = connect(wanted.url, **wanted.options)
        return connection


def close() -> None:
    """Close it; the next message opens one again."""
    with _lock:
        while _open:
            _open.popitem()[1].close()


def _after_fork() -> None:
    """Leave the parent's connections to the parent; its lock may be held by a thread that does not exist here."""
    global _lock
    _lock = threading.Lock()
    _parents.extend(_open.values())  # not closed here, also not by the collector
    _open.clear()


_parents: list[Connection] = []
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
