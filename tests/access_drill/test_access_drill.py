"""A short drill of rights finds nothing wrong; with a fault in the broker it does."""

import json
from collections import Counter

import pytest

from tests.access_drill.access_drill_mutants import MUTANTS
from tests.access_drill.acts import Result
from tests.access_drill.drill import Drill
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty, run_python

SECONDS = 10
FINDING = 60
"""Seconds of load in which a fault is found."""

COPIED = ("journal", "txbroker", "tests", "twisted", "setup.cfg", "pyproject.toml")


@pytest.mark.slow
def test_nothing_is_wrong_while_rights_change_and_the_broker_is_killed(tmp_path):
    verdict = Drill(tmp_path / "drill", 20, SECONDS, print).run()
    assert not verdict.violations
    assert verdict.kills + verdict.stops > 0
    assert verdict.counts > 0
    assert sum(verdict.changes.values()) > 10
    results = Counter()
    for (_, result), times in verdict.answers.items():
        results[result] += times
    assert results[Result.DONE] > 50
    assert results[Result.DENIED] > 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_drill_finds_the_fault(copy, tmp_path, mutant):
    with faulty(copy, mutant):
        ran = run_python(
            copy, "-m", "tests.access_drill", "--quiet", "--seconds", str(FINDING), "--seed", "5",
            "--out", str(tmp_path / "drill"), seconds=600,
        )  # fmt: skip
    assert "VIOLATIONS" in ran.stdout, json.dumps([ran.stdout[-2000:], ran.stderr[-2000:]])
