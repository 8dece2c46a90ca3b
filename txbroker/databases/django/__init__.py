"""Django: messages sent inside of ``transaction.atomic()`` are committed with it.

This is an application to put into ``INSTALLED_APPS``; ``docs/orms.md`` says how it works.
"""

from __future__ import annotations

from typing import Any, NoReturn

try:
    import django as _django  # noqa: F401 - to say what is missing
except ImportError as error:
    raise ImportError(
        f"txbroker.databases.django needs Django, which is not installed ({error}): pip install 'txbroker[django]'"
    ) from error

from txbroker import errors
from txbroker.databases.django.broker import broker
from txbroker.databases.django.transaction_messages import ack, cancel, receive, send, waiting

__all__ = ["ack", "adapt", "broker", "cancel", "receive", "send", "waiting"]


def adapt(connection: Any) -> NoReturn:
    """Refuse Django's connections, which ``txbroker.atomic`` does not take."""
    raise errors.Misuse(
        f"{type(connection).__module__}.{type(connection).__qualname__}: Django begins and commits by itself, so that "
        "txbroker.atomic cannot. Use `with transaction.atomic():` and txbroker.databases.django.send(topic, value) "
        "inside of it; nothing was done"
    )
