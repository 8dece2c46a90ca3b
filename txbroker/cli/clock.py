"""The one place where the command line reads the clock."""

from __future__ import annotations

import time
from typing import Final

from txbroker.cli.arguments import Parsed, moment


def now_micros() -> int:
    """µs since 1970 UTC."""
    return time.time_ns() // 1_000


TIME: Final = Parsed("time", lambda text: moment(text, now_micros()))
"""The type of an option with a time: ``2026-01-01T10:00`` or, before now, ``-10m``."""
