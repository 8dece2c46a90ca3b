"""The shop of the example works, and survives what the drill does to it; the naive one does not."""

import json
import os
import subprocess
import sys

import pytest

from examples.shop.drill.events import PARTIES
from tests.support.repository import PACKAGES

pytestmark = pytest.mark.slow


def ran(*command, folder):
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    return done.returncode, done.stdout + done.stderr


def drilled(folder, *arguments):
    status, said = ran("examples.shop.drill", "--json", "run.json", *arguments, folder=folder)
    return status, said, json.loads((folder / "run.json").read_text())


def check(folder, kills, seed):
    status, said, run = drilled(folder, "--kills", str(kills), "--seed", str(seed))
    assert status == 0, said
    assert sum(run["kills"].values()) == sum(run["moments"].values()) == kills
    assert run["orders"] == run["tasks"]["charge"] == run["tasks"]["ship"] == run["tasks"]["ask"] >= 2 * kills
    assert run["left_prepared"] > 0, "no kill left anything in doubt: they hit nothing worth hitting"
    assert not any((folder / "build/drill-shop").iterdir()), "a good run leaves nothing behind"
    return run


def test_some_kills_over_all_parties_lose_nothing_and_double_nothing(tmp_path):
    """With this seed each party is killed once: a process of the pool between prepare and COMMIT, the broker after
    COMMIT, a web worker after its own.
    """
    run = check(tmp_path, kills=6, seed=25687)
    assert run["kills"] == dict.fromkeys(PARTIES, 1)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [11, 12])
def test_many_kills_over_all_parties_lose_nothing_and_double_nothing(tmp_path, seed):
    check(tmp_path, kills=60, seed=seed)


@pytest.mark.deep
def test_the_naive_shop_loses_tasks_and_does_some_twice(tmp_path):
    status, said, run = drilled(tmp_path, "--naive", "--kills", "40", "--seed", "7")
    assert status == 1, said
    assert {"TASK_LOST", "TASK_TWICE"} <= {fault["fault"] for fault in run["faults"]}


@pytest.mark.deep  # the drill looks at the page, too
def test_the_shop_works_by_hand_and_shows_its_orders(tmp_path):
    status, said = ran("examples.shop", "--seconds", "2", "--rate", "10", folder=tmp_path)
    assert status == 0, said
    assert "Each order and each of its tasks is there once" in said
