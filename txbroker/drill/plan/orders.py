"""What a drill is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from journal.settings import TopicChoices

BRISK: Final = (
    "checkpoint_interval=2s",
    "checkpoint_bytes=16MiB",
    "file_bytes=18MiB",
    "low_water_bytes=64MiB",
)
"""Settings of a drill that is given none: so that in seconds happens what otherwise takes minutes."""

BRISK_TOPICS: Final[TopicChoices] = {"force_messages": 500, "force_interval": 1.0, "segment_bytes": 1 << 20}
"""The same of its topics, whoever's settings the broker has: their segments roll and are flushed all the time."""

LARGEST: Final = 60_000
LARGE_MESSAGES: Final = 300
"""So many of the largest messages do not fit into one turn of the broker: 17 MiB."""

ENTRY: Final = "txbroker.drill.broker.entry"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """One drill. ``seconds`` is how long there is load; kills that take longer make it longer.

    ``points``: where to kill, names or ``random``. ``out`` gets everything: ledgers, logs, the report, and the
    directory ``data`` with the broker's files, unless ``in_place``. ``data`` is copied there first. ``options`` are
    of ``twistd txbroker``; ``entry`` is the module that behaves as twistd. ``largest`` is the size of the largest
    messages in bytes; ``large_transactions`` says whether the settings allow some of 300 such messages. ``compression``
    is how clients compress, each connection in one of these ways, by chance.
    """

    seed: int
    kills: int
    seconds: float
    points: list[str]
    out: Path
    clients: int = 4
    two_phase: float = 0.5
    rate: float = 300.0
    data: Path | None = None
    in_place: bool = False
    power_cuts: bool = False
    """Whether the broker's death takes along all that it has not forced."""
    options: list[str] = []
    largest: int = LARGEST
    large_transactions: bool = True
    compression: tuple[str, ...] = ("none",)
    entry: str = ENTRY
    command: str = ""
