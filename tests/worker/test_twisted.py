"""Test workers of the Twisted client, in a process of its own, which has the reactor for itself."""

import contextlib
import sqlite3
import subprocess
import sys

import pytest

from tests.databases.orders import make_tables, numbers
from tests.support.repository import ROOT
from tests.worker.scene import fill

pytestmark = pytest.mark.slow


def test_a_worker_handles_by_deferreds_with_transactions_and_with_a_pool_of_connections(
    url, broker, topic, sqlite
):
    fill(broker, topic, 20)
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        make_tables(database)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.worker.twisted_program", url, topic, str(sqlite)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("ok\n", "")
    assert numbers(lambda: sqlite3.connect(sqlite)) == list(range(20))
