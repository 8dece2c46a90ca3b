"""The broker's connection of this process, over the broker's own protocol."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from txbroker.client.blocking import Connection, connect
from txbroker.errors import Misuse

_lock = threading.Lock()
_open: dict[str, Connection] = {}
_parents: list[Connection] = []


def broker_of(app: Any) -> Connection:
    """Return the connection of this process for an application, made when it is first needed and shared by its threads;
    a forked child gets its own.

    Its address is ``app.conf.txbroker_url``, further arguments of ``txbroker.connect`` are in
    ``app.conf.txbroker_options``. Without an address it is that of Django's settings. Raises Misuse if neither is
    there.
    """
    url = app.conf.get("txbroker_url")
    if url is None:
        if (django := django_messages()) is not None:
            found: Connection = django.broker()
            return found
        raise Misuse(
            "the broker's address is not known: set app.conf.txbroker_url, such as 'tcp:127.0.0.1:7654', the one of "
            "its own protocol, not of AMQP; nothing was done"
        )
    with _lock:
        connection = _open.get(url)
        if connection is None:
            connection = _open[url] = connect(url, **(app.conf.get("txbroker_options") or {}))
        return connection


def django_messages() -> Any:
    """Return the module that sends with Django's transactions, if the program uses Django with it; else None."""
    if (settings := sys.modules.get("django.conf")) is None or not settings.settings.configured:
        return None
    from django.apps import apps

    if not (apps.apps_ready and apps.is_installed("txbroker.databases.django")):
        return None
    from txbroker.databases import django

    return django


def _after_fork() -> None:
    """Leave the parent's connections to the parent; its lock may be held by a thread that does not exist here."""
    global _lock
    _lock = threading.Lock()
    _parents.extend(_open.values())  # not closed here, also not by the collector
    _open.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
