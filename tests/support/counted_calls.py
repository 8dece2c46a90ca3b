"""What is called: a measure of work that is the same on a busy machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], object]) -> list[str]:
    """Name the calls of Python and C, and the returns; a collection of garbage would come among them."""
    found: list[str] = []

    def note(_: Any, event: str, arg: Any) -> None:
        found.append(arg.__name__ if event == "c_call" else event)

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found
