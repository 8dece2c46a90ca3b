"""What a system that is measured promises: loads by name, how durable an answer is, and who its processes are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple


class Measure(NamedTuple):
    """What a load did: exchanges a second, seconds of latency that 50 and 99 % of them did not exceed.

    ``acknowledged`` counts all of them, those of the warm-up too. Latencies are None where the tool tells none.
    """

    rate: float
    p50: float | None
    p99: float | None
    acknowledged: int


Measures = Mapping[str, Measure]
"""By the name of the load: some tools measure two at once."""

Run = Callable[[float, float], Measures]
"""Runs a load for so many seconds that do not count, and so many that do."""


class Contender(ABC):
    """One system in one setting. It is opened once, then measured again and again."""

    name: str
    peer: str
    """What ``--only`` calls it."""
    durability: str
    """What is on disk when a request is acknowledged."""
    forced = True
    """Whether that is as much as the others promise."""
    warm_up = 1.0
    """How many times longer than others it runs before it counts: what is compiled meanwhile is slow at first."""
    probe = "depth-1"
    """The load under which forces are counted: one request at a time, so that none can share one."""

    @abstractmethod
    def version(self) -> str:
        """Which system it is; raises :class:`PeerMissing` where it is not installed."""

    @abstractmethod
    def open(self, folder: Path) -> AbstractContextManager[object]:
        """Start it in an empty folder, until the context ends."""

    @abstractmethod
    def runs(self) -> Mapping[str, Run]:
        """The loads that it takes part in, by name; it is open."""

    @abstractmethod
    def processes(self) -> list[int]:
        """Its processes."""

    @abstractmethod
    def settings(self) -> list[str]:
        """All that was set, a line each, as its own files and commands have it."""

    @abstractmethod
    def clients(self) -> list[str]:
        """Which programs loaded it, with their settings, a line each."""
