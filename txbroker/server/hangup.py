"""SIGHUP, which asks a process to read again what may have been renewed: it is caught from the command line on.

By itself it would end the process, and whoever renews a certificate does not know whether the broker recovers.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class Hangup:
    """Catches SIGHUP, and remembers it until there is something that can be read again."""

    def __init__(self) -> None:
        self._came = False

    def catch(self) -> None:
        """From now on it does not end the process."""
        signal.signal(signal.SIGHUP, self._note)

    def act(self, reactor: Any, action: Callable[[], object]) -> None:
        """From now on it has the reactor call ``action``; at once if it has come already."""
        signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(action))
        came, self._came = self._came, False
        if came:
            reactor.callFromThread(action)

    def _note(self, *_: object) -> None:
        self._came = True


HANGUP = Hangup()
"""That of this process."""
