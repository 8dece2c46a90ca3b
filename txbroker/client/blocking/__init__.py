"""The blocking client: ``txbroker.connect()``."""

from txbroker.client.blocking.connection import Connection, connect
from txbroker.client.blocking.consumer import Consumer
from txbroker.client.blocking.transaction import Transaction

__all__ = ["Connection", "Consumer", "Transaction", "connect"]
