"""Runs a module in a process that can be held at its moments: ``python -m examples.shop.drill.mortal FOLDER MODULE …``.

The shop, Django and Celery are as ever; what is called at a moment is put around their functions.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import current_task
from celery.signals import task_postrun
from django.db.backends.base.base import BaseDatabaseWrapper

from examples.shop.drill.moments import Moment, come_to
from txbroker.databases.blocking import BlockingSide

Comes = Callable[[Moment], None]


def around_commit(comes: Comes) -> None:
    """Have Django's COMMIT be a moment before, and another one after."""
    commit = BaseDatabaseWrapper._commit

    def held(connection: Any) -> None:
        in_task = bool(current_task)
        comes(Moment.TASK_BEFORE_COMMIT if in_task else Moment.WEB_BEFORE_COMMIT)
        commit(connection)
        comes(Moment.TASK_AFTER_COMMIT if in_task else Moment.WEB_AFTER_COMMIT)

    BaseDatabaseWrapper._commit = held


def before_prepare(comes: Comes) -> None:
    """Have the prepare at the broker be a moment."""
    prepare = BlockingSide.prepare

    async def held(side: BlockingSide) -> None:
        comes(Moment.TASK_BEFORE_PREPARE)
        await prepare(side)

    setattr(BlockingSide, "prepare", held)  # noqa: B010 - to mypy it is no method of that class


def main(folder: str, module: str) -> None:
    """Run a module."""
    comes = functools.partial(come_to, Path(folder))
    around_commit(comes)
    before_prepare(comes)
    task_postrun.connect(lambda **_: comes(Moment.TASK_DONE), weak=False)
    del sys.argv[:2]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
