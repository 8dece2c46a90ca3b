"""Looking at files that a broker at work makes and removes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from journal.errors import StorageUnavailable

T = TypeVar("T")

TRIES: Final = 50
SECONDS: Final = 20.0
"""A busy machine looks slowly, while as much is written as ever: it has so much time at least."""


def stable(root: str, look: Callable[[], T]) -> T:
    """What a look at a directory gives; one during which a file went away is taken again."""
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
