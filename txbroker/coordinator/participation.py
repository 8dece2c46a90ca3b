"""The choice of the resource for a connection that can take part in a two-phase commit."""

from __future__ import annotations

import sys
from typing import Any

from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.coordinator.broker_resource import BrokerResource
from txbroker.coordinator.postgresql import PostgresqlResource
from txbroker.coordinator.resource import Resource
from txbroker.databases.adapters.database import named

_CALLS = ("xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "tpc_recover")


def resource_of(connection: Any) -> Resource:
    """Return the resource over a connection; raises Misuse for another object, or one that cannot prepare."""
    if isinstance(connection, Connection):
        return BrokerResource(connection)
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    what = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if named(connection, "AsyncConnection") or "psycopg2" in packages:
        raise errors.Misuse(
            f"{what} cannot take part: of PostgreSQL's drivers, psycopg's blocking Connection can; nothing was done"
        )
    if missing := [call for call in _CALLS if not callable(getattr(connection, call, None))]:
        raise errors.Misuse(
            f"{what} cannot take part in a two-phase commit: it has no {', '.join(missing)} (PEP 249). With a database "
            "that cannot prepare, use txbroker.atomic; nothing was done"
        )
    if "psycopg" in packages and "psycopg" in sys.modules:
        return PostgresqlResource(connection)
    return Resource(connection)
