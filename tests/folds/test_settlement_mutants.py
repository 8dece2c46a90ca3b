"""Each fault in the fold of groups can be made, and the model test finds it."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

from tests.folds.settlement_mutants import MUTANTS
from tests.simulation.teeth import mutated
from tests.support.repository import ROOT

COPIED = ("journal", "txbroker", "tests")


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    source = (ROOT / mutant.path).read_text()
    made = mutated(source, mutant)
    assert made != source
    ast.parse(made)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the model test needs, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def is_sound(copy):
    """Whether the model test finds nothing in the copy; with a fault it takes a second."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
    ran = subprocess.run(
        [*command, "tests/folds/test_settlement_model.py"],
        cwd=copy, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    assert str(copy) in ran.stdout or ran.returncode == 0 or "test_settlement_model" in ran.stdout
    return ran.returncode == 0


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert is_sound(copy)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_model_finds_the_fault(copy, mutant):
    path = copy / mutant.path
    source = path.read_text()
    path.write_text(mutated(source, mutant))
    try:
        assert not is_sound(copy)
    finally:
        path.write_text(source)
