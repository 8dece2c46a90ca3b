"""What a core attends to without a caller: the memberships of groups."""

from __future__ import annotations

from typing import Any, Protocol

from txbroker.client.core.promise import Promise


class Attends(Protocol):
    """Part of a consumer that says something to the broker without a caller: while there is one, the connection is
    looked after.
    """

    def mend(self) -> None:
        """Repair what an interrupt left half done."""

    def committed(self) -> None:
        """Look whether what a transaction has committed was all that a partition waited for."""

    def leave(self) -> Promise[Any] | None:
        """Say what is left, for the last time. Returns a promise for when the broker knows, None if there is nothing to
        say.
        """
