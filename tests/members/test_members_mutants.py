"""Each fault in the coordinator of members can be made, and is found within seconds."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

from tests.members.members_mutants import MUTANTS
from tests.simulation.teeth import mutated
from tests.support.repository import ROOT

COPIED = ("journal", "txbroker", "tests", "pyproject.toml", "setup.cfg")
TESTS = ("tests/members/test_coordinator.py", "tests/members/test_coordinator_faults.py")
SECONDS = 30
"""A fault by which a group is looked after without end is found by the time that it takes."""

PROGRAM = """
import txbroker
from tests.members.members_model import World

print(txbroker.__file__)
for seed in range(100):
    World(seed, 40).run()
print("sound")
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    source = (ROOT / mutant.path).read_text()
    made = mutated(source, mutant)
    assert made != source
    ast.parse(made)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the tests need, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return target


def ran(copy, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


def is_sound(copy):
    """Whether the tests and the model find nothing in the copy."""
    try:
        if ran(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS).returncode:
            return False
        model = ran(copy, "-c", PROGRAM)
    except subprocess.TimeoutExpired:
        return False
    used, *rest = model.stdout.splitlines() or [model.stderr]
    assert used.startswith(str(copy)), used
    return rest[-1:] == ["sound"]


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert is_sound(copy)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_fault_is_found(copy, mutant):
    path = copy / mutant.path
    source = path.read_text()
    path.write_text(mutated(source, mutant))
    try:
        assert not is_sound(copy)
    finally:
        path.write_text(source)
