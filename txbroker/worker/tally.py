"""What a worker has done, and the line that says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.words import count_text


@dataclass
class Tally:
    """Counts since the last report. ``handled`` are messages whose handler returned."""

    handled: int = 0
    failed: int = 0
    lost: int = 0
    again: int = 0
    _since: float = field(default=0.0)

    def begin(self, now: float) -> None:
        """Count anew from a time on, in seconds."""
        self.handled = self.failed = self.lost = self.again = 0
        self._since = now

    def line(self, now: float, group: str, under_way: int, lag: int | None) -> str:
        """Return the report, and begin anew."""
        passed = max(now - self._since, 1e-9)
        parts = [
            f"group {group}: {count_text(self.handled, 'message')} handled in {passed:.0f} s "
            f"({self.handled / passed:.1f}/s)",
            f"{self.failed} failed",
        ]
        if self.again:
            parts.append(f"{self.again} begun again")
        if self.lost:
            parts.append(f"{self.lost} lost to other consumers")
        parts += [f"{under_way} under way", f"lag {'unknown' if lag is None else lag}"]
        self.begin(now)
        return ", ".join(parts)
