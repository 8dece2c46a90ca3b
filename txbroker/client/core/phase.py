"""The phases of a client's connection."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """The phase of a connection."""

    DOWN = "waiting to connect"
    CONNECTING = "the socket is being connected"
    GREETING = "hello has been sent, and the client logs in"
    OPEN = "there is a session"
    LEFT = "there is a session, on which the broker takes no more"
    CLOSED = "for good"
