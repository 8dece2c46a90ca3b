"""The listing of what all have in an outbox, on a thread and a connection to the database of its own.

It goes through the whole table, and that takes long while an old snapshot keeps millions of deleted rows (with ten
million of them: half a minute). The keeper's own thread has blocks that wait for a claim meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from txbroker.databases.outbox.table import OutboxTable, StreamRows
from txbroker.databases.tables.resolver_connection import ResolverConnection
from txbroker.wire.messages import StreamInfo


class Listing:
    """One listing, which has begun when it is made. A hint only: whoever goes by it claims and reads anew.

    ``known`` are the streams of the broker, by their names in hexadecimal, read before: so a row that was delivered
    and deleted in between does not look like one of an unknown stream.
    """

    def __init__(self, connection: ResolverConnection, broker: str, known: Mapping[str, StreamInfo]) -> None:
        """``connection`` is used by nobody else; ``broker`` is the broker's identity."""
        self.known = dict(known)
        self.seconds = 0.0
        """How long it took, connecting included."""
        self._connection = connection
        self._broker = broker
        self.rows: list[StreamRows] = []
        """What it has found, once it has ended."""
        self.failed: BaseException | None = None
        """The error that ended it."""
        self.began = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="txbroker-listing", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Wait for its end for so many seconds at most; return whether it has ended."""
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._connection.look()
            self.rows = OutboxTable(self._connection).streams(self._broker)
        except BaseException as error:  # noqa: BLE001 - for the keeper, which tells of it
            self.failed = error
        finally:
            self._connection.close()
            self.seconds = time.monotonic() - self.began
            self._ended.set()
