"""The worker beside a connection that ends with it: the resolver of :mod:`txbroker.databases`, a room above
this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from journal.transaction_states import State
from journal.xid import Xid

makers: list[Callable[[Any], Companion]] = []
"""The function that makes the worker beside a connection, if the room above has been imported."""


class Companion(Protocol):
    """A background worker of a connection."""

    interval: float
    """Seconds between its rounds."""

    @property
    def status(self) -> Any:
        """The state of its last round."""

    def row_outcome(self, xid: Xid) -> State | None:
        """Return how a block has ended that left its messages in a database; None if that is not known yet."""

    def hurry(self) -> None:
        """Have a round begin now."""

    def stop(self, timeout: float, waits: bool = True) -> None:
        """End it, with as little left undone as ``timeout`` seconds allow; without ``waits`` return at once, and it
        goes on by itself. Never raises; may be called again.
        """
