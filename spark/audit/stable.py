"""Looking at files that a broker at work makes and removes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from journal.errors import StorageUnavailable

T = TypeVar("T")

TRIES: Final = 50


def stable(root: str, look: Callable[[], T]) -> T:
    """What a look at a directory gives; one during which a file went away is taken again."""
    for _ in range(TRIES):
        try:
            return look()
        except FileNotFoundError as error:
            gone = error.filename
    raise StorageUnavailable(
        f"files of {root} went away {TRIES} times while they were looked at, {gone} at last; nothing was changed. "
        "Audit it when less is written, or a copy of it"
    )
