"""A logger that logs less while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quieted(name: str, least: int = logging.ERROR) -> Iterator[None]:
    """Within the ``with``, let the logger ``name`` log only records of level ``least`` or more.

    Its level is restored however the block ends: a command may be one of many in a process, and a logger that stays
    silent hides the next one's warnings.
    """
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(least)
    try:
        yield
    finally:
        logger.setLevel(before)
