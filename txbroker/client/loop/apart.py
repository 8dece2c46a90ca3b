"""Work that may block, on a thread of its own: a login's callbacks, files and hashes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from txbroker.client.core.login import Apart, Done


def apart(give: Callable[[Callable[[], object]], object]) -> Apart:
    """Return what runs work on a thread of its own; ``give`` has a call made where the client's core is used.

    A thread for each, because a program's function may wait for ever, and there are few logins.
    """

    def run(work: Callable[[], Any], done: Done) -> None:
        def on_thread() -> None:
            try:
                end = partial(done, work(), None)
            except BaseException as error:  # noqa: BLE001 - it is told to the login
                end = partial(done, None, error)
            give(end)

        threading.Thread(target=on_thread, name="txbroker login", daemon=True).start()

    return run


class Driving(Protocol):
    """What drives a client whose core is under a lock."""

    is_forked: bool

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Do something with the core under the lock."""

    def kick(self) -> None:
        """Have output sent."""

    def wake(self) -> None:
        """Wake the thread that drives, if it sleeps."""


def call_under_lock(driver: Driving, call: Callable[[], object]) -> None:
    """Make a call under a driver's lock, and have whoever drives see to what follows from it."""

    def made() -> None:
        call()
        driver.kick()
        driver.wake()

    if not driver.is_forked:
        driver.guarded(made)
