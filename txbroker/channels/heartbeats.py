"""Heartbeats: each side says something within the time that they have agreed on, or is taken for dead.

Source: the specification, section 4.2.7; a side is given twice the interval, as RabbitMQ does.
"""

from __future__ import annotations


class Heartbeats:
    """The heartbeats of one connection, looked at every second. ``interval`` is in seconds, 0 for none."""

    def __init__(self) -> None:
        self.interval = 0
        self.has_sent = False
        """Whether something was sent since the last look."""
        self._sent_at = self._heard_at = 0.0
        self._heard = 0

    def look(self, now: float, heard: int, is_read: bool) -> None:
        """Note at a time how many bytes have come so far. Who is not read cannot be heard."""
        if heard != self._heard or not is_read or not self._heard_at:
            self._heard, self._heard_at = heard, now
        if self.has_sent or not self._sent_at:
            self.has_sent, self._sent_at = False, now

    def is_due(self, now: float) -> bool:
        """Return whether a heartbeat is to be sent; it counts as sent then."""
        if not self.interval or now - self._sent_at < self.interval / 2 - 1:
            return False
        self._sent_at = now
        return True

    def missed(self, now: float) -> str:
        """Return why the client is taken for dead, "" if it is not."""
        silent = now - self._heard_at
        if not self.interval or silent <= 2 * self.interval:
            return ""
        return f"missed heartbeats: it has said nothing for {silent:.0f} s"
