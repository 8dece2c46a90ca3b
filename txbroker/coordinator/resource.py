"""What the coordinator needs of a participant's connection, and what any driver with PEP 249's TPC methods gives.

One is made per transaction over the user's connection, and one per pass over what the reconnecting function opened.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from journal.transaction import State
from txbroker.coordinator.gids import FORMAT_ID, Branch, branch_of


class Content(NamedTuple):
    """What a participant holds before it prepares. An empty one takes no part in the decision.

    ``witness`` is what it can be asked about after its prepared transaction is gone; "" if it does not remember.
    """

    is_empty: bool
    witness: str = ""


class Ending(NamedTuple):
    """How a branch ended, COMMITTED or ROLLED_BACK, whoever ended it; ``by`` and ``why`` if it was not as decided."""

    state: State
    by: str = ""
    why: str = ""


def decided(commit: bool) -> Ending:
    """As it was decided."""
    return Ending(State.COMMITTED if commit else State.ROLLED_BACK)


class Resource:
    """A connection with PEP 249's TPC methods, of which nothing else is known.

    Such a driver does not say whether anything was done, and remembers nothing of what has ended.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._branch = Branch("", "")

    @property
    def identity(self) -> str:
        """Which data this is, so that a decision is never looked for elsewhere; "" if it cannot be told."""
        return ""

    # -- in a transaction --------------------------------------------------------------------------

    def begin(self, branch: Branch) -> None:
        """Begin. Raises if it cannot be prepared later on; then nothing is begun."""
        self._branch = branch
        self.connection.tpc_begin(self._xid(branch))

    def look(self) -> Content:
        """What there is to prepare; raises if it can only be rolled back."""
        return Content(is_empty=False)

    def prepare(self) -> None:
        """The first phase; returns once it is forced."""
        self.connection.tpc_prepare()

    def commit_alone(self) -> None:
        """Commit in one phase what was not prepared."""
        self.connection.tpc_commit()

    def did_not_commit(self, error: BaseException) -> bool:  # noqa: ARG002 - others need it
        """After :meth:`commit_alone` raised ``error``: whether it certainly was not and will not be committed."""
        return False

    def finish(self, commit: bool, witness: str) -> Ending:  # noqa: ARG002 - others need it
        """The second phase, or the roll-back of what is not prepared, on the connection that began it."""
        if commit:
            self.connection.tpc_commit()
        else:
            self.connection.tpc_rollback()
        return decided(commit)

    def abandon(self) -> None:
        """What was prepared is ended by somebody else: leave the connection usable, or close it."""
        self.connection.close()

    # -- over what others began ----------------------------------------------------------------------

    def listed(self, name: str, identity: str) -> set[str]:
        """The global ids of this coordinator's branches of this name that are prepared."""
        found = [branch_of(xid, identity) for xid in self.connection.tpc_recover() if self._is_here(xid)]
        return {branch.gid for branch in found if branch is not None and branch.name == name}

    def end(self, branch: Branch, commit: bool, witness: str, is_listed: bool) -> Ending:
        """End a prepared branch of another session, or find out how it ended; raises if neither can be done now.

        One that is prepared no more is taken for ended as decided: this driver cannot tell.
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
