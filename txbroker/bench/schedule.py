"""The schedule of an open loop: when each message is to be sent, fixed in advance, whatever the broker does."""

from __future__ import annotations

from collections.abc import Iterator


class Schedule:
    """``rate`` operations a second from ``start`` on, dealt to ``clients`` in turn; these are some of ``among``.

    Client ``first + k`` of all has its own places in the common row, so processes interleave without talking.
    """

    def __init__(self, start: float, rate: float, first: int, clients: int, among: int) -> None:
        self._start = start
        self._rate = rate
        self._first = first
        self._clients = clients
        self._among = among
        self._given = 0

    @property
    def next_at(self) -> float:
        """Return when the next operation is to begin."""
        turn, client = divmod(self._given, self._clients)
        return self._start + (turn * self._among + self._first + client) / self._rate

    def due(self, now: float) -> Iterator[tuple[int, float]]:
        """Return (client, when it was to begin) of all operations that are due; late ones are not left out."""
        while (at := self.next_at) <= now:
            client = self._given % self._clients
            self._given += 1
            yield client, at
