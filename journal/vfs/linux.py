"""The Linux calls that the storage needs. Importing this module elsewhere raises :class:`PlatformUnsupported`."""

from __future__ import annotations

import os
import sys
from typing import Final

from journal.errors import PlatformUnsupported

CALLS: Final = ("fdatasync", "posix_fadvise", "pwritev", "statvfs", "O_DIRECTORY")
"""The calls of :mod:`os` that the storage needs and that not every system has."""


def unsupported(why: str) -> PlatformUnsupported:
    """Return the error for the broker, the coordinator and the embedded log on a system that lacks a call."""
    return PlatformUnsupported(
        f"txbroker's broker, its coordinator and the embedded log run on Linux only, and {why}. Nothing was opened. "
        "The clients need none of it: txbroker.connect() and txbroker.atomic() work with a broker on another machine"
    )


try:
    import fcntl as fcntl
    import resource as resource
except ImportError as error:
    raise unsupported(f"this Python has no module {error.name}") from None

if lacking := [name for name in CALLS if not hasattr(os, name)]:
    raise unsupported(f"this Python has no os.{lacking[0]}")

if sys.platform != "linux":
    raise unsupported(f"this is {sys.platform}")
