"""Intents: what somebody wants of the broker, and what is known of whether it has happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OPEN, DONE, VOID = "open", "done", "void"
NEVER = 1 << 60


@dataclass(eq=False)
class Intent:
    """Something asked for that must happen once and wholly, or not at all; times are the model's."""

    name: str
    stream: str = ""
    place: int = 0
    values: dict[int, list[bytes]] = field(default_factory=dict)
    number: tuple[int, int] | None = None
    """Of a transaction: session and serial. It has an outcome, and once that is void it stays so."""
    asked: set[str] = field(default_factory=set)
    attempts: int = 0
    state: str = OPEN
    asked_at: int = NEVER
    prepared_at: int = NEVER
    ended_at: int = NEVER
    doomed: bool = False  # part of it was surely refused, so that all of it must be
    vague: bool = False  # whether it has happened may be impossible to see

    def happened(self, bases: Mapping[int, int]) -> None:
        """Hear that it is known to have happened, and from which offsets on its messages are, each time."""
