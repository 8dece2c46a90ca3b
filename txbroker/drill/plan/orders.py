"""The orders say what a drill is to do."""

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
"""The settings of a drill without settings: events that otherwise take minutes happen within seconds."""

BRISK_WORK: Final = ("reconnect_grace=500ms",)
"""Further settings for one with workers: what a dead one had goes to another before the broker is killed again."""

BRISK_TOPICS: Final[TopicChoices] = {"force_messages": 500, "force_interval": 1.0, "segment_bytes": 1 << 20}
"""The settings of its topics, whatever settings the broker has: their segments roll and are flushed all the time."""

LARGEST: Final = 60_000
LARGE_MESSAGES: Final = 300
"""So many of the largest messages do not fit into one turn of the broker: 17 MiB."""

ENTRY: Final = "txbroker.drill.broker.entry"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of one drill. ``seconds`` is the length of the load; kills that take longer extend it.

    ``points`` says where to kill: names or ``random``. ``out`` gets everything: ledgers, logs, the report, and the
    directory ``data`` with the broker's files, unless ``in_place``. ``data`` is copied there first. ``options`` are
    options of ``twistd txbroker``; ``entry`` is the module that behaves as twistd. ``largest`` is the size of the
    largest messages in bytes; ``large_transactions`` says whether the settings allow some of 300 such messages.
    ``compression`` lists the ways clients compress; each connection takes one of them by chance.
    """

    seed: int
    kills: int
    seconds: float
    points: list[str]
    out: Path
    clients: int = 4
    two_phase: float = 0.5
    rate: float = 300.0
    workers: int = 0
    schedulers: int = 0
    queuers: int = 0
    amqp: int = 0
    data: Path | None = None
    in_place: bool = False
    power_cuts: bool = False
    """Whether all that the broker has not forced is lost when it dies."""
    options: list[str] = []
    largest: int = LARGEST
    large_transactions: bool = True
    compression: tuple[str, ...] = ("none",)
    entry: str = ENTRY
    command: str = ""
