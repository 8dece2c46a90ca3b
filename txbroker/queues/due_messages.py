"""Messages that waited at a delayed exchange, and are due: they go where its bindings lead now, by one record (decision
0066).
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from journal.constants import KIB
from journal.folds.queues import QueuesFold
from journal.formats.envelope import Envelope
from journal.records.queue_entries import exchange_of
from journal.transactions.unsent import Also, Unsent, UnsentRun
from txbroker.errors import DiskFull, RequestRefused
from txbroker.queues.publishing import Publishing, Ways

MOST: Final = 512
"""Most messages of one record: their ways are found in 5 ms."""
MOST_BYTES: Final = 256 * KIB


class DueMessages:
    """The exchanges that the schedule sends to; see :class:`journal.schedule.placing.Exchanges`."""

    def __init__(self, fold: QueuesFold, publishing: Publishing) -> None:
        self._fold, self._publishing = fold, publishing
        self._said = dict[int, str]()
        """Why messages of an exchange could not go on last, by its address: only another reason is logged."""

    def __contains__(self, address: int) -> bool:
        return exchange_of(address) in self._fold.exchanges_by_number

    def name(self, address: int) -> str:
        """Return the name of the exchange at an address; "" if there is none."""
        found = self._fold.exchanges_by_number.get(exchange_of(address)) if address < 0 else None
        return "" if found is None else found.name

    def batch(self, address: int) -> RoutedBatch:
        """Return an empty batch of messages for that exchange."""
        return RoutedBatch(self._publishing, address, self._said)


class RoutedBatch:
    """Messages for one exchange. They are taken by queues that refuse what is too much, too: they were accepted before,
    as those of a prepared transaction are.
    """

    log = Logger()

    def __init__(self, publishing: Publishing, address: int, said: dict[int, str]) -> None:
        self._publishing, self._address, self._said = publishing, address, said
        self.count = self._bytes = 0
        self.gone: list[tuple[int, int]] = []
        self._ids = list[int]()
        self._runs = list[tuple[int, Also, list[bytes | memoryview]]]()
        """Messages that go the same way: the first partition and the others, and their frames."""
        self._ways = Ways()
        self._next: UnsentRun | None = None

    def fits(self, envelope: Envelope) -> bool:
        """Return whether the message may be added; the first one always. It finds its ways here.

        Raises DiskFull.
        """
        size = len(envelope.frame)
        if self.count and (self.count >= MOST or self._bytes + size > MOST_BYTES):
            return False
        self._next = None
        try:
            [self._next] = self._publishing.routed(self._address, envelope.frame, self._ways, is_ours=True)
        except RequestRefused as error:
            if self.count:
                return False  # with those before it it is too much, perhaps
            if isinstance(error, DiskFull):
                raise
            self._blocked(error)
            self._ways = Ways()  # it has used up what others may
        return True

    def _blocked(self, error: RequestRefused) -> None:
        if self._said.get(self._address) != str(error):
            self._said[self._address] = str(error)
            self.log.error(
                "a message that is due cannot go through the exchange at {address}, and is tried again each minute: "
                "{error}",
                address=self._address, error=str(error),
            )  # fmt: skip

    def add(self, number: int, envelope: Envelope) -> bool:
        """Add the message with that id; return whether it could find its ways."""
        if self._next is None:
            return False
        first, _, frame, also = self._next
        if not self._runs or self._runs[-1][:2] != (first, also):
            self._runs.append((first, also, []))
        self._runs[-1][2].append(frame)
        self._ids.append(number)
        self.count += 1
        self._bytes += len(envelope.frame)
        return True

    def place(self) -> None:
        """Have the record accepted; raises ``MemoryExhausted`` before anything has changed."""
        runs = [(first, len(frames), b"".join(frames), also) for first, also, frames in self._runs]
        self._publishing.publish_due(self._address, Unsent(runs), self._ids)
        self._said.pop(self._address, None)
