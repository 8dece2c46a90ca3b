"""The exit status of the process: twistd itself returns 0 at best, or dies of the signal that ended it."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from twisted.internet.error import ReactorNotRunning

FAILED = 1


def end_process(reactor: Any) -> None:
    """Stop the reactor in order; then the process ends with status 1.

    twistd runs the reactor and returns, so the status can be set only after it: when the interpreter ends.
    """
    atexit.register(_exit_failed)
    _stop(reactor)


def _exit_failed() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(FAILED)


def end_well_on_sigterm(reactor: Any) -> None:
    """From now on SIGTERM stops the reactor and the status is 0, because a requested stop is no failure."""

    def stop(*_: object) -> None:
        reactor.callFromThread(_stop, reactor)

    signal.signal(signal.SIGTERM, stop)


def _stop(reactor: Any) -> None:
    with suppress(ReactorNotRunning):  # it is stopping already
        reactor.stop()
