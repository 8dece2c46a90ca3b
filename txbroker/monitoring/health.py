"""The health of a process, for who starts it, restarts it, or sends it work: whether it is ready, and if not, why."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """What the process is doing."""

    RECOVERING = "recovering"
    WAITING = "waiting for a login"
    SERVING = "serving"
    STOPPING = "stopping"
    FAILED = "failed"


class Health:
    """What the process is doing now. A full or slow disk is no reason not to be ready: readers must reach it, and so
    must whoever makes room.
    """

    def __init__(self) -> None:
        self.phase = Phase.RECOVERING
        self.detail = ""
        """How far it is, or what has failed; "" if there is nothing to say."""
        self.on_change: Callable[[], object] = lambda: None
        """Called behind each :meth:`is_now`."""

    def is_now(self, phase: Phase, detail: str = "") -> None:
        """Note what the process is doing from now on. What has failed stays so."""
        if self.phase is not Phase.FAILED:
            self.phase, self.detail = phase, detail
            self.on_change()

    @property
    def is_ready(self) -> bool:
        """Whether clients should come."""
        return self.phase is Phase.SERVING

    @property
    def has_started(self) -> bool:
        """Whether recovery is over, and nothing has ended the process yet."""
        return self.phase in (Phase.SERVING, Phase.WAITING)

    @property
    def sentence(self) -> str:
        """The phase, with its detail, on one line."""
        what = "ready" if self.is_ready else self.phase.value
        return f"{what}: {self.detail}" if self.detail else what
