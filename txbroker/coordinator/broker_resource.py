"""A broker as a participant, over the blocking client."""

from __future__ import annotations

from journal.parties import with_principal
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.resource import Content, Ending, Resource, decided
from txbroker.errors import HeuristicOutcome


class BrokerResource(Resource):
    """Between begin and the end, what this thread sends on the connection belongs to the transaction."""

    connection: Connection

    @property
    def identity(self) -> str:
        """Of the broker's data."""
        return self.connection.identity

    def look(self) -> Content:
        """Whether anything was sent or received."""
        current = self.connection._two_phase.current
        if current is None or current.xid != self._xid(self._branch):
            raise errors.Misuse(
                "the program ended the broker's part itself (tpc_commit or tpc_rollback inside of the block): what it "
                "committed stays, the rest is rolled back everywhere"
            )
        return Content(current.is_empty)

    def abandon(self) -> None:
        """The connection forgets it; it stays prepared at the broker."""
        current, self.connection._two_phase.current = self.connection._two_phase.current, None
        if current is not None:
            current.leave()

    def did_not_commit(self, error: BaseException) -> bool:
        """The client says which it is."""
        return isinstance(error, errors.TxBrokerError) and not isinstance(error, errors.OutcomeUnknown)

    def finish(self, commit: bool, witness: str) -> Ending:
        """The second phase, or the roll-back; a prepare that was refused has rolled back already."""
        if not commit and self.connection._two_phase.current is None:
            return decided(False)
        try:
            return super().finish(commit, witness)
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)

    def end(self, branch: Branch, commit: bool, witness: str, is_listed: bool) -> Ending:
        """End it, or hear how it ended: the broker answers as the first time, and remembers who forced it otherwise."""
        try:
            return self._end(branch, commit, witness)
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)
        except (errors.UnknownTransaction, errors.OutcomeForgotten):
            if is_listed:
                raise  # then it has ended just now; the next pass finds out
            return decided(commit)  # what its coordinator was told is forgotten; a forced one never by itself


def _otherwise(error: errors.TxBrokerError, commit: bool) -> Ending:
    by, why = "", str(error)
    if isinstance(error, HeuristicOutcome):
        by, why = with_principal(error.by, error.principal), error.why
    return decided(not commit)._replace(by=by, why=why)


class StagingBroker(BrokerResource):
    """A broker's part that holds no state of the connection: threads may share that."""

    def begin(self, branch: Branch) -> None:
        """Begin; asks the broker nothing."""
        self._branch = branch
        self.transaction = self.connection.transaction(self._xid(branch))

    def look(self) -> Content:
        """Whether anything was sent."""
        return Content(self.transaction._core.is_empty)

    def prepare(self) -> None:
        """Have the broker keep it."""
        self.transaction.prepare()

    def commit_alone(self) -> None:
        """In one phase."""
        self.transaction.commit()

    def finish(self, commit: bool, witness: str) -> Ending:  # noqa: ARG002 - others need it
        """The second phase, or the roll-back."""
        try:
            (self.transaction.commit if commit else self.transaction.rollback)()
        except (errors.TransactionCommitted, errors.TransactionRolledBack) as error:
            return _otherwise(error, commit)
        return decided(commit)

    def abandon(self) -> None:
        """Nothing but the broker knows of what is prepared."""
        self.transaction._core.leave()
