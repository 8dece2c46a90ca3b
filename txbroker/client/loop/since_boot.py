"""The clock that also counts while the machine sleeps."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)


def since_boot() -> float:
    """Return seconds that only grow: since the machine was started, also while it slept, where the system tells that.

    Elsewhere it is ``time.monotonic``.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
