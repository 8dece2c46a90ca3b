"""The client for Twisted."""

from txbroker.client.twisted.connection import Connection, Consumer, Transaction, connect

__all__ = ["Connection", "Consumer", "Transaction", "connect"]
