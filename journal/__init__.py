"""An embedded transactional log: txbroker is built on it, and it can be used without txbroker.

``journal.open(path)`` opens a directory; see :class:`journal.embedded.Log`. Imports no Twisted. The log itself is
loaded when it is first used, because the clients import formats, names and errors from here, also where the log does
not run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from journal.compiled import choose

if TYPE_CHECKING:
    from journal.embedded import Log as Log
    from journal.embedded import open_log as open

BUILD = choose()
"""Whether this process runs compiled modules or Python's source; chosen before the first such module is imported."""

_HOMES = {
    "Log": "Log",
    "open": "open_log",
}
"""The public names, and their names in :mod:`journal.embedded`."""

__all__ = ["Log", "open"]


def __dir__() -> list[str]:
    """Return the public names too, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load a public name when it is first used. Raises PlatformUnsupported where the log does not run."""
    if name not in _HOMES:
        raise AttributeError(f"module 'journal' has no attribute {name!r}")
    found = getattr(import_module("journal.embedded"), _HOMES[name])
    globals()[name] = found
    return found
