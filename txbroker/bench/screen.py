"""The screen of a measurement: one line that is drawn again on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from txbroker.bench.plan import Plan
from txbroker.bench.rows import milliseconds
from txbroker.bench.tally import Progress

SECOND_LINES = 5.0
"""Seconds between two lines of progress where there is no terminal."""


class Screen:
    """A watcher of a measurement; as a context manager, it keeps its line on the terminal."""

    def __init__(self, console: Console, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._plan = plan
        self._clock = clock
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._said_at = clock()
        self._doing = ""
        self._before = (0.0, 0)
        self._per_second = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, doing: str, seconds: float, progress: Progress | None) -> None:
        """Show the progress."""
        changed, self._doing = doing != self._doing, doing
        if changed:
            self._before, self._per_second = (0.0, 0), 0.0
        line = self._line(seconds, progress)
        if self._console.is_terminal:
            self._live.update(Text(line))
        elif changed or self._clock() - self._said_at >= SECOND_LINES:
            self._said_at = self._clock()
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _line(self, seconds: float, progress: Progress | None) -> str:
        if progress is None or not progress.done:
            return self._doing
        since, done = self._before
        if progress.done != done and seconds > since:
            self._per_second = (progress.done - done) / (seconds - since)
            self._before = (seconds, progress.done)
        asked = f" of {self._plan.seconds:g}" if self._plan.seconds is not None else ""
        wrong = f", {progress.errors:,} ERRORS" if progress.errors else ""
        return (
            f"{self._doing}: {seconds:.0f}{asked} s, {progress.done:,} {self._plan.unit}, {self._per_second:,.0f}/s, "
            f"p50 {milliseconds(progress.p50)} ms, p99 {milliseconds(progress.p99)} ms{wrong}"
        )
