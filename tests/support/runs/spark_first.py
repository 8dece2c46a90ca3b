"""A pytest plugin that has the tests of Spark run first: so one worker of ``make test`` has them, and one Java machine.

Workers take from the end of each other's rest. Where these tests lay near the end of all, as their name has it, four
or five workers had some of them at last, each with a Java machine that had to start and to warm up.
"""

from __future__ import annotations

import pytest

_SPARK = "tests/spark/"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))
