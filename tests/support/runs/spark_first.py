"""A pytest plugin that has two workers of ``make test`` begin with the tests of Spark, each with half of their files.

So two of them have a Java machine, and not all. Workers begin with equal shares of all tests, in their order, and take
from the end of each other's rest. Where these tests lay near the end, as their name has it, four or five workers had
some of them at last, each with a machine that had to start and to warm up; one worker alone has them for as long as
the others have all else (25 minutes on two cores).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

_SPARK = "tests/spark/"
_ENOUGH = 4
"""With fewer workers one has them all."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [items[each] for each in order([item.nodeid.partition("::")[0] for item in items], workers)]


def order(files: Sequence[str], workers: int) -> list[int]:
    """Return the places of tests, of which these are the files, in the order in which so many workers share them."""
    spark = [place for place, file in enumerate(files) if file.startswith(_SPARK)]
    others = [place for place, file in enumerate(files) if not file.startswith(_SPARK)]
    if workers < _ENOUGH:
        return [*spark, *others]
    second = set(list(dict.fromkeys(files[place] for place in spark))[1::2])
    of_first = [place for place in spark if files[place] not in second]
    of_second = [place for place in spark if files[place] in second]
    between = max(0, len(files) // workers - len(of_first))
    return [*of_first, *others[:between], *of_second, *others[between:]]
