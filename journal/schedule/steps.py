"""Work in steps, so that others have their turn: who carries it out reads the disk on another thread, or at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar, cast

from journal.errors import CorruptData
from journal.log.read_plan import ReadPlan

T = TypeVar("T")
Work = Callable[[], Any]
Steps = Generator[Work | None, Any, None]
"""Yields work that may wait for the disk, to be run on any thread, and takes its result; or None after a bounded part,
so that others have their turn.
"""


def carry_out(steps: Generator[Work | None, Any, T]) -> T:
    """Carry out steps, and the work that they yield, at once on this thread; return their result. What fails in the
    work is raised where they have yielded it.
    """
    go_on: Callable[[], Work | None] = partial(next, steps)
    while True:
        try:
            work = go_on()
        except StopIteration as end:
            return cast(T, end.value)
        try:
            go_on = partial(steps.send, None if work is None else work())
        except Exception as error:  # noqa: BLE001 - it is raised by the steps, unless they know better
            go_on = partial(steps.throw, error)


def run_all(plans: list[tuple[int, int, ReadPlan]]) -> list[tuple[int, int, bytes | Exception]]:
    """Run reads on a thread; return what each has read, or why not, with its log and first offset."""
    found: list[tuple[int, int, bytes | Exception]] = []
    try:
        for log, first, plan in plans:
            try:
                found.append((log, first, plan.run().data))
            except (CorruptData, OSError) as error:
                found.append((log, first, error))
    finally:
        for _, _, plan in plans:
            plan.close()
    return found
