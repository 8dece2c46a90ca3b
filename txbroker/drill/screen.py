"""The screen shows a running drill: one block that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from txbroker.drill.drill import Progress

SECOND_LINES = 10.0
"""Seconds between two lines of progress where there is no terminal."""

BAR = 30


class Screen:
    """A watcher of a drill, and the context in which its block is on the terminal."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._said_at = 0.0
        self._doing = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, line: str) -> None:
        """Write a line that stays: something has happened."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """Show the progress."""
        if self._console.is_terminal:
            self._live.update(block(progress))
            return
        now = self._clock()
        waited = progress.seconds and now - self._said_at >= SECOND_LINES
        if waited or (progress.doing != self._doing and progress.doing not in ("under load", "restarting")):
            self._said_at, self._doing = now, progress.doing
            self.tell(line_of(progress))


def line_of(progress: Progress) -> str:
    """Return the whole progress on one line."""
    return (
        f"{progress.doing}: {_seconds(progress)}, {_kills(progress)}, "
        f"{progress.acknowledged:,} acknowledged, {progress.in_doubt} in doubt, broker {progress.broker}"
    )


def _far(done: float, asked: float, unit: str) -> str:
    """Return how much of what was requested is done; a slow machine takes longer, and one kill comes after the load."""
    if round(done) <= round(asked):
        return f"{done:.0f} of {asked:.0f} {unit}"
    return f"{done:.0f} {unit} ({asked:.0f} asked for)"


def _seconds(progress: Progress) -> str:
    return _far(progress.seconds, progress.seconds_asked, "s")


def _kills(progress: Progress) -> str:
    return _far(progress.kills, progress.kills_asked, "kills")


def block(progress: Progress) -> Table:
    """Return the same as a table."""
    share = min(progress.seconds / progress.seconds_asked, 1.0) if progress.seconds_asked else 1.0
    filled = round(share * BAR)
    style = {"up": "green", "killed": "red", "recovering": "yellow", "paused": "yellow"}.get(
        progress.broker, ""
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        "drill",
        Text("━" * filled, "cyan") + Text("━" * (BAR - filled), "dim"),
        f"{_seconds(progress)}, {progress.doing}",
    )
    grid.add_row("broker", Text(progress.broker, style), _kills(progress))
    grid.add_row(
        "load",
        f"{progress.acknowledged:,} acknowledged",
        f"{progress.per_second:,.0f} per second, {progress.in_doubt} in doubt",
    )
    grid.add_row("clients", f"{progress.clients} at work", f"{progress.client_deaths} killed")
    return grid
