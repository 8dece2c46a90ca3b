"""Whether a start is the first one after a restore, which begins a new time line (decision 0064)."""

from __future__ import annotations

from enum import IntEnum


class Restored(IntEnum):
    """What a start goes on with. The numbers are on disk."""

    NOT = 0
    """The data as the start before it left them."""
    REPLACEMENT = 1
    """A backup, in the place of the data that it was made of: what it holds prepared may be decided already."""
    COPY = 2
    """A backup, beside these data: it decides nothing of theirs."""
