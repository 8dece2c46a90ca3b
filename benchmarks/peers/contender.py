"""A contender is a system that is measured: its loads by name, how durable an answer is, and its processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple


class Measure(NamedTuple):
    """The result of a load: exchanges a second, and the latencies in seconds that 50 and 99 % of them did not exceed.

    ``acknowledged`` counts all of them, those of the warm-up too. Latencies are None where the tool tells none.
    """

    rate: float
    p50: float | None
    p99: float | None
    acknowledged: int


Measures = Mapping[str, Measure]
"""Measures by the name of the load: some tools measure two at once."""

Run = Callable[[float, float], Measures]
"""A function that runs a load for a number of seconds that do not count, and a number that do."""


class Contender(ABC):
    """One system in one setting. It is opened once, then measured again and again."""

    name: str
    peer: str
    """The name of the system in ``--only``."""
    durability: str
    """What is on disk when a request is acknowledged."""
    forced = True
    """Whether that is as much as the other systems promise."""
    warm_up = 1.0
    """How many times longer than others it warms up: code is slow until it is compiled."""
    probe = "depth-1"
    """The load under which forces are counted: one request at a time, so that none can share one."""

    @abstractmethod
    def version(self) -> str:
        """Return the version; raises :class:`PeerMissing` where the system is not installed."""

    @abstractmethod
    def open(self, folder: Path) -> AbstractContextManager[object]:
        """Start the system in an empty folder, until the context ends."""

    @abstractmethod
    def runs(self) -> Mapping[str, Run]:
        """Return the loads that it takes part in, by name; it has been opened."""

    @abstractmethod
    def processes(self) -> list[int]:
        """Return its processes."""

    @abstractmethod
    def settings(self) -> list[str]:
        """Return all settings, a line each, as its own files and commands have them."""

    @abstractmethod
    def clients(self) -> list[str]:
        """Return which programs loaded it, with their settings, a line each."""
