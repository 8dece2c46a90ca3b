"""Writing and forcing on a thread that needs the interpreter's lock for neither, where it is compiled.

The reactor puts a job into an area of memory and signals; the thread writes, forces, and signals back. With the lock a
thread waited for it three times a force, and took it from the reactor as often: 64 clients did a fifth fewer
transactions (docs/decisions/0050-forces-without-the-lock.md).
"""

from __future__ import annotations

from journal.vfs import force_calls


def serve(area: bytearray, asked: int, done: int) -> None:
    """Do the jobs in an area until one ends it; see :mod:`journal.vfs.force_calls`.

    ``asked`` and ``done`` are eventfds; ``area`` must not be touched between a signal and its answer. Raises
    ``OSError`` if an eventfd fails, ValueError for an area that is too small.
    """
    force_calls.serve(area, asked, done)
