"""The worker of a connection, as each client gives it. It is made by :mod:`txbroker.worker`, which stands above."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeVar

from txbroker.client.core.results import Message

T_co = TypeVar("T_co", covariant=True)


class Worker(Protocol[T_co]):
    """Reads messages for a group and calls a handler for each. ``T`` is what waiting for its end gives."""

    @property
    def failed(self) -> Message | None:
        """The message whose handler failed, if the worker has ended because of that."""

    def run(self) -> T_co:
        """Work until it is stopped. It may be called once."""

    def stop(self) -> None:
        """Have :meth:`run` end: no new message is begun, what is under way is finished."""


def worker_of(home: str, connection: Any, topics: Any, group: Any, handler: Any, **choices: Any) -> Any:
    """Make the worker of a client; ``home`` is its module, loaded when it is used, because it stands on the databases,
    which stand on the clients.
    """
    return import_module(f"txbroker.worker.{home}").Worker(connection, topics, group, handler, **choices)
