"""Test that each leaf does the same compiled as from its source: bytes, states, errors and their texts."""

import random

import pytest

from journal.compiled import LEAVES
from tests.compiled.builds import builds_of
from tests.compiled.cases import CASES

QUICK = 6_000
"""Seeds in `make test`, three calls and more each; `make test-deep` asks 250,000 of each leaf, a million in all."""


def compare(name: str, seeds: range) -> None:
    builds, cases = builds_of(name), CASES[name]
    assert builds.compiled.__file__.endswith(".so")
    assert builds.pure.__file__.endswith(".py")
    for seed in seeds:
        for number, (pure, compiled) in enumerate(cases(random.Random(seed), builds)):
            assert compiled == pure, f"seed {seed}, call {number}"


def test_each_leaf_has_cases():
    assert sorted(CASES) == sorted(LEAVES)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAVES)
def test_both_builds_do_the_same(name):
    compare(name, range(QUICK))


@pytest.mark.deep
@pytest.mark.parametrize("name", LEAVES)
def test_both_builds_do_the_same_a_million_times(name):
    compare(name, range(QUICK, QUICK + 250_000))
