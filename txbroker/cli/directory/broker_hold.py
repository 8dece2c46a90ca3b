"""The files of a broker's data directory, held over its connection while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.errors import FilesReleased
from txbroker.errors import TxBrokerError

if TYPE_CHECKING:
    from txbroker import Connection


class BrokerHold:
    """A pin of the broker behind a connection. Raises DiskFull where space is scarce, AccessDenied without the right.

    The pin is of the session that has taken it: a connection that was lost and made again has none.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        pinned = connection.pin_files()
        welcomed = connection.core.former
        assert welcomed is not None, "the connection is open"
        self.checkpoint, self.cut = pinned
        self.start, self.nonce = welcomed.session >> 32, welcomed.start
        self.identity = connection.identity
        self._is_released = False

    def check(self) -> None:
        """Raise :class:`FilesReleased` if the broker does not keep the files any more."""
        try:
            if self._connection.files_pinned():
                return
            why = "its disk is short of room, or the connection was lost"
        except TxBrokerError as error:
            raise FilesReleased(_message(str(error))) from error
        raise FilesReleased(_message(why))

    def release(self) -> bool:
        """Release the files; return whether they have been kept all the time. A second call does nothing."""
        if self._is_released:
            return False
        self._is_released = True
        try:
            return self._connection.unpin_files()
        except TxBrokerError:
            return False  # nobody can tell any more, so it does not count


def _message(why: str) -> str:
    return (
        f"the broker does not keep its files any more ({why}); no backup was made, and nothing was changed. Run it "
        "again when that is over"
    )
