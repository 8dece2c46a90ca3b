"""A pytest plugin for tests of whole products: ``make check`` and ``make test`` run samples of their parameters.

``@pytest.mark.sampled(3)`` leaves three of a test's parameters as they are, spread evenly, and marks the others slow;
without a number it leaves the first one. With ``test=9`` only nine are run by ``make test`` too, and the rest is deep.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def sample(count: int, wanted: int) -> list[int]:
    """Return the places of a sample of ``wanted`` among ``count`` parameters: spread evenly, the first one always."""
    wanted = min(count, wanted)
    return [number * count // wanted for number in range(wanted)]


@pytest.hookimpl(tryfirst=True)  # before -m leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for parameters in tests.values():
        mark = parameters[0].get_closest_marker("sampled")
        assert mark is not None
        kept = _all_but_marked(parameters, mark.kwargs.get("test", len(parameters)), pytest.mark.deep)
        _all_but_marked(kept, mark.args[0] if mark.args else 1, pytest.mark.slow)


def _all_but_marked(
    parameters: Sequence[pytest.Item], wanted: int, mark: pytest.MarkDecorator
) -> Sequence[pytest.Item]:
    """Mark all but a sample, and return the sample."""
    kept = sample(len(parameters), wanted)
    for place in set(range(len(parameters))).difference(kept):
        parameters[place].add_marker(mark)
    return [parameters[place] for place in kept]
