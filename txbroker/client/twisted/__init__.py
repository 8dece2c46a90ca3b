"""The client for Twisted."""

from txbroker.client.twisted.connection import Connection, Consumer, connect
from txbroker.client.twisted.transaction import Transaction

__all__ = ["Connection", "Consumer", "Transaction", "connect"]
