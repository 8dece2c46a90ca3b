"""A broker as a participant, over the blocking client."""

from __future__ import annotations

from journal.parties import with_principal
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.resource import Content, Ending, Resource, decided
from txbroker.errors import HeuristicOutcome


class BrokerResource(Resource):
    """A broker's connection: between begin and the end, this thread's sends on it belong to the transaction."""

    connection: Connection

    @property
    def identity(self) -> str:
        """The identity of the broker's data."""
        return self.connection.identity

    def look(self) -> Content:
        """Return whether anything was sent or received."""
        current = self.connection._two_phase.current
        if current is None or current.xid != self._xid(self._branch):
            raise errors.Misuse(
                "the program ended the broker's part itself (tpc_commit or tpc_rollback inside of the block): what it "
                "committed stays, the rest is rolled back everywhere"
            )
        return Content(current.is_empty)

    def abandon(self) -> None:
        """Have the connection forget it; it stays prepared at the broker."""
        current, self.connection._two_phase.current = self.connection._two_phase.current, None
        if current is not None:
            current.leave()

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether it certainly was not committed; the client's error says that."""
        return isinstance(error, errors.TxBrokerError) and not isinstance(error, errors.OutcomeUnknown)

    def finish(self, commit: bool, witness: str) -> Ending:
        """Run the second phase, or roll back; a refused prepare has rolled back already."""
        if not commit and self.connection._two_phase.current is None:
            return decided(False)
        try:
            return super().finish(commit, witness)
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)

    def end(self, branch: Branch, commit: bool, witness: str, is_listed: bool) -> Ending:
        """End it, or return how it ended: the broker repeats its answer, and remembers who forced it otherwise."""
        try:
            return self._end(branch, commit, witness)
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)
        except (errors.UnknownTransaction, errors.OutcomeForgotten):
            if is_listed:
                raise  # it has ended just now; the next pass finds out how
            # the outcome is forgotten after its coordinator knew it; a heuristic one never by itself
            return decided(commit)


def _otherwise(error: errors.TxBrokerError, commit: bool) -> Ending:
    by, why = "", str(error)
    if isinstance(error, HeuristicOutcome):
        by, why = with_principal(error.by, error.principal), error.why
    return decided(not commit)._replace(by=by, why=why)


class StagingBroker(BrokerResource):
    """A broker's part without state in the connection, so that threads may share the connection."""

    def begin(self, branch: Branch) -> None:
        """Begin; asks the broker nothing."""
        self._branch = branch
        self.transaction = self.connection.transaction(self._xid(branch))

    def look(self) -> Content:
        """Return whether anything was sent."""
        return Content(self.transaction._core.is_empty)

    def prepare(self) -> None:
        """Have the broker keep it."""
        self.transaction.prepare()

    def commit_alone(self) -> None:
        """Commit in one phase."""
        self.transaction.commit()

    def finish(self, commit: bool, witness: str) -> Ending:  # noqa: ARG002 - others need it
        """Run the second phase, or roll back."""
        try:
            (self.transaction.commit if commit else self.transaction.rollback)()
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)
        return decided(commit)

    def abandon(self) -> None:
        """Do nothing: only the broker knows of the prepared transaction."""
        self.transaction._core.leave()
