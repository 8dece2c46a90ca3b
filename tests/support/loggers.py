"""A check that a test leaves the project's loggers as it found them: otherwise later tests miss log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

OURS = ("journal", "txbroker")


def _ours() -> dict[str, logging.Logger]:
    made = logging.root.manager.loggerDict
    names = {name for name in made if name.partition(".")[0] in OURS}.union(OURS)
    return {name: logging.getLogger(name) for name in names}


def _state(logger: logging.Logger) -> tuple[int, bool, bool]:
    return logger.level, logger.disabled, logger.propagate


@contextmanager
def left_as_found() -> Iterator[None]:
    """Fail if level, ``disabled`` or ``propagate`` of a project's logger has changed; restore them first."""
    before = {name: _state(logger) for name, logger in _ours().items()}
    fresh = (logging.NOTSET, False, True)
    disabled = logging.root.manager.disable
    yield
    changed = []
    if logging.root.manager.disable != disabled:
        changed.append(f"logging.disable({logging.root.manager.disable})")
        logging.disable(disabled)
    for name, logger in sorted(_ours().items()):
        found, left = before.get(name, fresh), _state(logger)
        if left != found:
            changed.append(f"{name}: (level, disabled, propagate) was {found}, is {left}")
            logger.setLevel(found[0])
            _, logger.disabled, logger.propagate = found
    assert not changed, f"the test leaves loggers changed, which silences later ones: {'; '.join(changed)}"
