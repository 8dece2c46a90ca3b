"""The client for asyncio."""

from txbroker.client.asyncio.connection import Connection, Consumer, Transaction, connect

__all__ = ["Connection", "Consumer", "Transaction", "connect"]
