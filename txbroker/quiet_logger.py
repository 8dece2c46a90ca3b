"""A logger that says less for as long as a command works, and not a moment longer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quieted(name: str, least: int = logging.ERROR) -> Iterator[None]:
    """Within the ``with``, the logger ``name`` lets only records of ``least`` or more through.

    Its level is put back however the block ends: a command may be one of many in a process, and what is
    silenced for good hides the next one's warnings.
    """
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(least)
    try:
        yield
    finally:
        logger.setLevel(before)
