"""Detection of buffers that are never released: some are watched, and report their allocation when they are collected.

It follows Netty's ``ResourceLeakDetector``, which samples allocations. Here blocks of memory are sampled when they
leave the arena: all buffers that are made of such a block are watched, while it moves through caches. So an allocation
from a cache costs nothing more.
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
"""The same rate as Netty's."""

_HERE: Final = str(Path(__file__).parent)
_FRAMES: Final = 5

_log = logging.getLogger(__name__)


def warn(report: str) -> None:
    """Report by a warning, as Python does for files that are not closed. Tests turn every warning into an error."""
    warnings.warn(report, ResourceWarning, stacklevel=3)


class LeakDetector:
    """Watches one of ``every`` blocks of memory; ``report`` is called for lost buffers, ``found`` counts them."""

    def __init__(self, every: int = EVERY, report: Callable[[str], object] = _log.error) -> None:
        self.every = every
        self.found = 0
        self._report = report
        self._left = every

    def is_due(self) -> bool:
        """Return whether the block that is about to leave the arena is to be watched."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self.every
        return True

    def lost(self, size: int, site: str) -> None:
        """Report a watched buffer that was collected without having been released."""
        self.found += 1
        self._report(
            f"a buffer of {size} bytes was lost, not released: its part of pool_bytes is gone until the next start. It "
            f"was allocated at {site}"
        )


def allocation_site() -> str:
    """Return the callers outside of this package, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append(f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})")
        frame = frame.f_back
    return ", called from ".join(found)
