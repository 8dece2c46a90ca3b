"""Processes: the name of a client's process, and connections that stay with the parent after a fork.

The child closes its copies of the sockets, so that the broker sees the parent's end of a connection when the parent
closes it. A use in the child raises :class:`ProcessForked`.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import weakref
from typing import Protocol

from txbroker.errors import ProcessForked


class Forkable(Protocol):
    """An object that must learn of a fork, and of the interpreter's end."""

    def send_held(self) -> None:
        """Send the output that is held. It is called before a fork, on the thread that forks, and at the end."""

    def forked(self) -> None:
        """Learn of a fork. It is called in the child, on its only thread; threads that are gone may have held locks."""


_living: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(connection: Forkable) -> None:
    """Inform ``connection`` of forks for as long as it lives."""
    _living.add(connection)


def process_name() -> str:
    """Return the name that operators see for a client without a name: program, host and process."""
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    name = f"{program}@{socket.gethostname()}:{os.getpid()}"[:200]
    return name.encode(errors="replace").decode()  # a file's name need not be UTF-8, but the request must be


def refusal() -> ProcessForked:
    """Return the error for a use in the child."""
    return ProcessForked(
        f"this connection was made before fork(), in another process than {os.getpid()}; "
        "it belongs to the parent: open a new one here; nothing was sent"
    )


def _send_held() -> None:
    for connection in list(_living):
        connection.send_held()


def _in_child() -> None:
    for connection in list(_living):
        connection.forked()
    _living.clear()


atexit.register(_send_held)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_send_held, after_in_child=_in_child)  # the parent may leave by os._exit
