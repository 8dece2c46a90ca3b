"""txbroker: the message broker that takes part in your database transaction.

``connect()`` returns the blocking client; :mod:`txbroker.client.twisted` and :mod:`txbroker.client.asyncio` have
the clients for Twisted and asyncio. Every error is in :mod:`txbroker.errors`. Importing this package imports
neither Twisted nor a client: each is loaded when it is first used. The import raises ImportError if another package
is installed under the name ``journal``, and warns if another one is installed under the name ``spark``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from txbroker.foreign_packages import check_neighbours

if TYPE_CHECKING:
    from journal.settings import TopicSettings as TopicSettings
    from journal.transaction_states import State as State
    from journal.transaction_states import TransactionNumber as TransactionNumber
    from journal.xid import Xid as Xid
    from txbroker import errors as errors
    from txbroker.client.blocking import Connection as Connection
    from txbroker.client.blocking import connect as connect
    from txbroker.client.core.results import Durability as Durability
    from txbroker.client.core.results import Message as Message
    from txbroker.client.core.results import Receipt as Receipt
    from txbroker.client.core.retry_policy import RetryPolicy as RetryPolicy
    from txbroker.coordinator.joined_transaction import join as join
    from txbroker.databases.blocking import Atomic as Atomic
    from txbroker.databases.blocking import atomic as atomic
    from txbroker.databases.blocking import create_decision_table as create_decision_table
    from txbroker.databases.outbox.streams import Backlog as Backlog
    from txbroker.databases.resolver import Resolution as Resolution
    from txbroker.databases.resolver import Resolver as Resolver
    from txbroker.wire.messages import TopicInfo as TopicInfo
    from txbroker.wire.messages import TransactionInfo as TransactionInfo

check_neighbours()
import_module("journal")  # chooses whether compiled modules are imported, ours too

__version__: str = import_module("journal.formats.version").PROGRAM
"""The version of this package, and of ``txbroker-server`` and ``txbroker-compiled``."""

_HOMES = {
    "Atomic": "txbroker.databases.blocking",
    "Connection": "txbroker.client.blocking",
    "Durability": "txbroker.client.core.results",
    "Message": "txbroker.client.core.results",
    "Receipt": "txbroker.client.core.results",
    "RetryPolicy": "txbroker.client.core.retry_policy",
    "Resolution": "txbroker.databases.resolver",
    "Resolver": "txbroker.databases.resolver",
    "State": "journal.transaction_states",
    "TopicInfo": "txbroker.wire.messages",
    "TopicSettings": "journal.settings",
    "TransactionInfo": "txbroker.wire.messages",
    "TransactionNumber": "journal.transaction_states",
    "Xid": "journal.xid",
    "atomic": "txbroker.databases.blocking",
    "connect": "txbroker.client.blocking",
    "Backlog": "txbroker.databases.outbox.streams",
    "create_decision_table": "txbroker.databases.blocking",
    "join": "txbroker.coordinator.joined_transaction",
}

__all__ = [  # noqa: PLE0604
    "errors",
    *sorted(_HOMES),
]


def __dir__() -> list[str]:
    """Return the public names too, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first used."""
    if name == "errors":
        return import_module("txbroker.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'txbroker' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
