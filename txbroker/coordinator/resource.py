"""The calls that the coordinator needs of a participant's connection, and their form for any driver with TPC methods.

One resource is made per transaction over the user's connection, and one per pass over a connection of the reconnecting
function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from journal.transaction_states import State
from txbroker.coordinator.gids import FORMAT_ID, Branch, branch_of


class Content(NamedTuple):
    """The contents of a participant before it prepares. An empty one takes no part in the decision.

    ``witness`` identifies its transaction in later questions, after the prepared transaction is gone; "" if it
    remembers none.
    """

    is_empty: bool
    witness: str = ""


class Ending(NamedTuple):
    """The end of a branch, COMMITTED or ROLLED_BACK; ``by`` and ``why`` if it was not as decided."""

    state: State
    by: str = ""
    why: str = ""


def decided(commit: bool) -> Ending:
    """Return the end as it was decided."""
    return Ending(State.COMMITTED if commit else State.ROLLED_BACK)


class Resource:
    """A connection with PEP 249's TPC methods, and no other known abilities.

    Such a driver does not say whether any work was done, and remembers nothing of ended transactions.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._branch = Branch("", "")

    @property
    def identity(self) -> str:
        """Return the identity of its data, so that a decision is never looked for elsewhere; "" if unknown."""
        return ""

    # -- in a transaction --------------------------------------------------------------------------

    def begin(self, branch: Branch) -> None:
        """Begin. Raises if it cannot be prepared later on; then nothing is begun."""
        self._branch = branch
        self.connection.tpc_begin(self._xid(branch))

    def look(self) -> Content:
        """Return what there is to prepare; raises if it can only be rolled back."""
        return Content(is_empty=False)

    def prepare(self) -> None:
        """Run the first phase; returns once it is forced."""
        self.connection.tpc_prepare()

    def commit_alone(self) -> None:
        """Commit in one phase, without a prepare."""
        self.connection.tpc_commit()

    def did_not_commit(self, error: BaseException) -> bool:  # noqa: ARG002 - others need it
        """Return whether it certainly was not and will not be committed, after :meth:`commit_alone` raised
        ``error``.
        """
        return False

    def finish(self, commit: bool, witness: str) -> Ending:  # noqa: ARG002 - others need it
        """Run the second phase, or roll back an unprepared one, on the connection that began it."""
        if commit:
            self.connection.tpc_commit()
        else:
            self.connection.tpc_rollback()
        return decided(commit)

    def abandon(self) -> None:
        """Leave the connection usable, or close it: the participant thread ends the prepared transaction."""
        self.connection.close()

    # -- over what others began ----------------------------------------------------------------------

    def listed(self, name: str, identity: str) -> set[str]:
        """Return the global ids of this coordinator's prepared branches of this name."""
        found = [branch_of(xid, identity) for xid in self.connection.tpc_recover() if self._is_here(xid)]
        return {branch.gid for branch in found if branch is not None and branch.name == name}

    def end(self, branch: Branch, commit: bool, witness: str, is_listed: bool) -> Ending:
        """End a prepared branch of another session, or find out how it ended; raises if neither can be done now.

        A branch that is no longer prepared is taken for ended as decided: this driver cannot tell.
        """
        if is_listed:
            self._end(branch, commit, witness)
        return decided(commit)

    def _end(self, branch: Branch, commit: bool, witness: str) -> Ending:  # noqa: ARG002 - others need it
        (self.connection.tpc_commit if commit else self.connection.tpc_rollback)(self._xid(branch))
        return decided(commit)

    def _is_here(self, xid: Any) -> bool:  # noqa: ARG002 - others need it
        return True

    def _xid(self, branch: Branch) -> Any:
        return self.connection.xid(FORMAT_ID, branch.gid, branch.name)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
