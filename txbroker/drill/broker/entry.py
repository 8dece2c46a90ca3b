"""``python -m txbroker.drill.broker.entry [--power-cuts] ARMED [twistd's arguments]`` runs a broker that kills itself.

Production code has no hooks for this. The entry gives the service a file system that watches its calls, and wraps
four methods of the engine to know what is being forced and applied. ARMED is ``-``, or a point and a number as
``during-recovery:7``; later ones come as such lines on standard input. When that is closed, whoever ran the drill is
gone, and the broker stops. With ``--power-cuts`` what is not forced dies with the process; the line ``power-cut`` lets
some of that survive, as a kernel may have written it back, and then the process dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from twisted.scripts import twistd

from journal.engine.engine import Engine
from journal.transactions.commit_application import SlicedApply
from journal.wal.writer import Journal, Placed
from txbroker.drill.broker.fatal_calls import KillingFilesystem, Trigger, on_power_cuts, on_system
from txbroker.drill.broker.kill_points import DISARMED, MID_APPLY, POINTS, POWER_CUT, POWER_CUTS
from txbroker.server import service
from txbroker.server.threads import force_thread


def armed_with(text: str) -> tuple[str | None, int]:
    """Return point and number of ``POINT:NTH``; (None, 1) for ``-``."""
    name, _, nth = text.strip().partition(":")
    return (None, 1) if name == DISARMED else (name, int(nth or 1))


def set_trigger(trigger: Trigger, text: str) -> None:
    """Arm or disarm the trigger as the text says."""
    name, nth = armed_with(text)
    trigger.arm(POINTS[name] if name else None, nth)


def install(trigger: Trigger, files: Callable[[str, Trigger], KillingFilesystem] = on_system) -> None:
    """Wrap the engine of this process so that it reports to the trigger what it does."""
    setattr(service, "OSFilesystem", lambda root: files(root, trigger))  # noqa: B010  (mypy knows a class)
    setattr(force_thread, "serve", trigger.serve)  # noqa: B010
    queue, write, place, step = Engine.queue, Journal.write, Journal.place, SlicedApply.step

    @wraps(queue)
    def watched_queue(self: Engine, decision: Any, data: bytes | memoryview = b"") -> int:
        lsn = queue(self, decision, data)
        trigger.accepted(decision, lsn)
        return lsn

    @wraps(write)
    def watched_write(self: Journal, group: Any) -> None:
        trigger.writing(group)
        write(self, group)

    @wraps(place)
    def watched_place(self: Journal, group: Any) -> Placed | None:
        trigger.writing(group)
        return place(self, group)

    @wraps(step)
    def watched_step(self: SlicedApply, forced_lsn: int) -> bool:
        done = step(self, forced_lsn)
        if not done and self.progress > (0, 0):
            trigger.passed(MID_APPLY)
        return done

    Engine.queue = watched_queue  # type: ignore[method-assign]
    Journal.write = watched_write  # type: ignore[method-assign]
    Journal.place = watched_place  # type: ignore[method-assign]
    SlicedApply.step = watched_step  # type: ignore[method-assign]


def listen(trigger: Trigger) -> None:
    """Read orders from standard input until it ends."""
    for line in sys.stdin:
        if line.strip() == POWER_CUT:
            trigger.die("a moment by chance")
        set_trigger(trigger, line)
    os.kill(os.getpid(), signal.SIGTERM)


def run(arguments: list[str]) -> None:
    """Run twistd with a trigger."""
    trigger = Trigger()
    power_cuts = arguments[0] == POWER_CUTS
    arguments = arguments[power_cuts:]
    set_trigger(trigger, arguments[0])
    install(trigger, on_power_cuts if power_cuts else on_system)
    threading.Thread(target=listen, args=(trigger,), name="drill's orders", daemon=True).start()
    sys.argv = ["twistd", *arguments[1:]]
    twistd.run()


if __name__ == "__main__":
    run(sys.argv[1:])
