"""What works beside a connection and ends with it: the resolver of :mod:`txbroker.databases`, which stands above."""

from __future__ import annotations

from typing import Any, Protocol


class Companion(Protocol):
    """A background worker of a connection."""

    interval: float
    """Seconds between its rounds."""

    @property
    def status(self) -> Any:
        """How its last round went."""

    def stop(self, timeout: float) -> None:
        """End it, leaving as little undone as ``timeout`` seconds allow; never raises. Again, it does no more harm."""
