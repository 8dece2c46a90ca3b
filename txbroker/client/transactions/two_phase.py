"""The two-phase calls of PEP 249 over the transactions of the core, and its names for errors.

A connection has at most one transaction between ``tpc_begin`` and its end; sends meanwhile belong to it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from journal.arguments import NOTHING_CHANGED, checked_xid, octets, text, whole
from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise
from txbroker.client.operations.transaction_operations import end_prepared, transactions
from txbroker.client.producer.producer import Producer
from txbroker.client.transactions.decision import Stage
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.transaction import Transaction

NO_CONSUMER = (
    "commit_offsets() of a connection does not say whose positions are meant; nothing was sent. Use consumer.commit() "
    "for all that it has handed out, consumer.commit(message) for all up to that message in its partition, "
    "consumer.commit({(topic, partition): offset}), or tx.commit_offsets(consumer) in a transaction"
)


class Exceptions:
    """PEP 249's exceptions as attributes of a connection, each mapped to a branch of this package's tree.

    ``OutcomeUnknown`` is a DatabaseError and none of its kinds: PEP 249 has no name for it. A ``Warning`` is never
    raised.
    """

    Warning = UserWarning
    Error = errors.TxBrokerError
    DatabaseError = errors.TxBrokerError
    InterfaceError = errors.Misuse
    ProgrammingError = errors.RequestRefused
    DataError = errors.InvalidFrame
    IntegrityError = errors.TransactionConflict
    OperationalError = errors.StorageUnavailable
    InternalError = errors.CorruptData
    NotSupportedError = errors.VersionRefused


def xid_of(format_id: int, global_id: str | bytes, branch: str | bytes) -> Xid:
    """Make a transaction id; text becomes UTF-8. Raises InvalidName over the bounds of XA, WrongType, WrongValue."""
    number = whole("format_id", format_id, NOTHING_CHANGED)
    parts = (_part("global_transaction_id", global_id), _part("branch_qualifier", branch))
    return checked_xid(Xid(number, *parts))


def _part(name: str, part: str | bytes) -> bytes:
    if isinstance(part, str):
        return text(name, part, NOTHING_CHANGED).encode()
    return octets(name, part, NOTHING_CHANGED, wanted="str or bytes")


class TwoPhase:
    """The connection's own transaction: none, begun, or prepared."""

    def __init__(self, core: Core, producer: Producer, serials: Serials) -> None:
        self.current: Transaction | None = None
        self._core = core
        self._parts = (core, producer, serials)

    def begin(self, xid: Xid) -> None:
        """Let sends belong to ``xid`` from now on."""
        if self.current is not None and not self.current.is_read_only:
            raise errors.Misuse(
                f"tpc_begin inside of {self.current.xid}, which is not ended; nothing has changed"
            )
        self.current = Transaction(*self._parts, checked_xid(xid))

    async def prepare(self) -> None:
        """Run the first phase."""
        transaction = self.current
        if transaction is None:
            raise errors.Misuse("tpc_prepare without tpc_begin; nothing has changed")
        try:
            await transaction.prepare()
        finally:
            self._leave(transaction)

    async def commit(self, xid: Xid | None) -> None:
        """Run the second phase, or both in one; with ``xid``, that of a recovered transaction."""
        transaction = self._mine(xid, "tpc_commit")
        if transaction is None:
            await end_prepared(self._core, xid, commit=True)  # type: ignore[arg-type]
            return
        try:
            await transaction.commit()
        finally:
            self._leave(transaction)

    async def rollback(self, xid: Xid | None) -> None:
        """Roll back, prepared or not; with ``xid`` a recovered transaction."""
        transaction = self._mine(xid, "tpc_rollback")
        if transaction is None:
            await end_prepared(self._core, xid, commit=False)  # type: ignore[arg-type]
            return
        try:
            await transaction.rollback()
        finally:
            self._leave(transaction)

    async def recover(self) -> list[Xid]:
        """Return the xids of all prepared transactions of the client's principal, of any session."""
        found = await transactions(self._core, [State.PREPARED], own=True)
        return [info.xid for info in found if info.xid is not None]

    def _mine(self, xid: Xid | None, call: str) -> Transaction | None:
        current = self.current
        if current is None and xid is None:
            raise errors.Misuse(f"{call} without tpc_begin and without an xid; nothing has changed")
        if current is not None and xid is not None:
            raise errors.Misuse(f"{call}({xid}) inside of {current.xid}: end that first; nothing has changed")
        return current

    def _leave(self, transaction: Transaction) -> None:
        if transaction.stage in (Stage.COMMITTED, Stage.ROLLED_BACK) and self.current is transaction:
            self.current = None


class TwoPhaseOperations(Exceptions):
    """PEP 249's two-phase calls of every client's connection, except ``tpc_begin``."""

    _two_phase: TwoPhase

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes) -> Xid:
        """PEP 249: make a transaction id; raises InvalidName over 64 bytes a part."""
        return xid_of(format_id, global_transaction_id, branch_qualifier)

    @client_method
    def tpc_prepare(self) -> Coroutine[Promise[Any], None, None]:
        """PEP 249: run the first phase; after it the transaction survives client, broker and power."""
        return self._two_phase.prepare()

    @client_method
    def tpc_commit(self, xid: Xid | None = None) -> Coroutine[Promise[Any], None, None]:
        """PEP 249: run the second phase, or, without ``tpc_prepare``, commit in one; ``xid``: a recovered
        transaction.
        """
        return self._two_phase.commit(xid)

    @client_method
    def tpc_rollback(self, xid: Xid | None = None) -> Coroutine[Promise[Any], None, None]:
        """PEP 249: roll back, prepared or not; with ``xid`` a recovered transaction."""
        return self._two_phase.rollback(xid)

    @client_method
    def tpc_recover(self) -> Coroutine[Promise[Any], None, list[Xid]]:
        """PEP 249: return the xids of prepared transactions of the client's principal, of any session."""
        return self._two_phase.recover()

    @client_method
    async def commit_offsets(self) -> None:
        """Raise Misuse, because it does not say which consumer is meant; ``consumer.commit()`` does."""
        raise errors.Misuse(NO_CONSUMER)
