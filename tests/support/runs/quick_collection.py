"""A pytest plugin that saves what pytest and the garbage collector spend on twenty thousand tests beside the tests."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
from collections.abc import Generator

import pytest

# pytest asks for the version of Twisted before each test, once twisted.internet.testing is imported: 4 ms each time.
importlib.metadata.version = functools.cache(importlib.metadata.version)


FEWER_COLLECTIONS = (10_000, 10, 20)
"""With Python's own threshold, 700 objects, collecting takes a fifth of the fast tests' time; with this a tenth."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules and tests are made, which all stay: that took a third of 12 s in each worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*FEWER_COLLECTIONS)
        gc.enable()
