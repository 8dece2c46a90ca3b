"""Where a connection of a client is."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where the connection is."""

    DOWN = "waiting to connect"
    CONNECTING = "the face is connecting"
    GREETING = "hello has been sent"
    OPEN = "there is a session"
    CLOSED = "for good"
