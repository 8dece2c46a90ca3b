"""A pytest plugin for tests of whole products: ``make check`` runs a sample of their parameters, ``make test`` all.

``@pytest.mark.sampled(3)`` leaves three of a test's parameters as they are, spread evenly, and marks the others slow;
without a number it leaves the first one.
"""

from __future__ import annotations

import pytest


def sample(count: int, wanted: int) -> set[int]:
    """Return the places of a sample of ``wanted`` among ``count`` parameters: spread evenly, the first one always."""
    wanted = min(count, wanted)
    return {number * count // wanted for number in range(wanted)}


@pytest.hookimpl(tryfirst=True)  # before -m leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = {}
    wanted: dict[str, int] = {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            tests.setdefault(test, []).append(item)
            wanted[test] = mark.args[0] if mark.args else 1
    for test, parameters in tests.items():
        kept = sample(len(parameters), wanted[test])
        for place, item in enumerate(parameters):
            if place not in kept:
                item.add_marker(pytest.mark.slow)
