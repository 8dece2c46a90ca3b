"""Reading files that a broker at work creates and removes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from journal.errors import StorageUnavailable

T = TypeVar("T")

TRIES: Final = 50
SECONDS: Final = 20.0
"""The least time for repeated tries: a busy machine is slow to look, while files change as fast as ever."""


def stable(root: str, look: Callable[[], T]) -> T:
    """Return the result of a look at a directory; it is repeated if a file went away meanwhile."""
    tries, end = 0, time.monotonic() + SECONDS
    while tries < TRIES or time.monotonic() < end:
        tries += 1
        try:
            return look()
        except FileNotFoundError as error:
            gone = error.filename
    raise StorageUnavailable(
        f"files of {root} went away {tries} times while they were looked at, {gone} at last; nothing was changed. "
        "Audit it when less is written, or a copy of it"
    )
