"""Finding buffers that nobody released: some are watched, and say where they were allocated if they are collected.

After Netty's ``ResourceLeakDetector``, which samples allocations. Here memory is, when it leaves the arena: all buffers
that are made of it are watched then, while it goes round in caches. So allocating from these costs nothing more.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

EVERY: Final = 128
"""As Netty has it."""

_HERE: Final = str(Path(__file__).parent)
_FRAMES: Final = 5

_log = logging.getLogger(__name__)


def warn(report: str) -> None:
    """A report as Python has it of files that are not closed: for tests, which make an error of every warning."""
    warnings.warn(report, ResourceWarning, stacklevel=3)


class LeakDetector:
    """Watches one of ``every`` blocks of memory; ``report`` is told of buffers that are lost, ``found`` counts them."""

    def __init__(self, every: int = EVERY, report: Callable[[str], object] = _log.error) -> None:
        self.every = every
        self.found = 0
        self._report = report
        self._left = every

    def is_due(self) -> bool:
        """Whether the memory that is about to leave the arena is to be watched."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self.every
        return True

    def lost(self, size: int, site: str) -> None:
        """A watched buffer was collected and had not been released."""
        self.found += 1
        self._report(
            f"a buffer of {size} bytes was lost, not released: its part of pool_bytes is gone until the next start. It "
            f"was allocated at {site}"
        )


def allocation_site() -> str:
    """The callers outside of this package, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append(f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})")
        frame = frame.f_back
    return ", called from ".join(found)
