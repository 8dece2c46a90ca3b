"""The client for asyncio."""

from txbroker.client.asyncio.connection import Connection, Consumer, connect
from txbroker.client.asyncio.transaction import Transaction

__all__ = ["Connection", "Consumer", "Transaction", "connect"]
