"""Test that the protocol of `txbroker.atomic` holds in every interleaving, and that the checker finds every mistake."""

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from models import check
from models.check import MEANT, MISTAKES, MODEL, REACHED, Checked, CheckerFailed, Outcome, Variant

FAST = MISTAKES[0]


@pytest.mark.slow
@pytest.mark.parametrize("variant", check.VARIANTS, ids=lambda variant: variant.name)
def test_the_checker_says_of_each_variant_what_it_must(variant):
    checked = check.check(variant)
    assert checked.outcome is variant.expected
    assert checked.states > 100


@pytest.mark.slow
def test_the_way_to_a_mistake_can_be_read():
    steps = check.counterexample(FAST)
    assert "state = ROLLED_BACK" in steps
    assert "row = 1" in steps
    assert re.search(r"Error: assertion violated", steps)


def test_every_option_of_the_model_is_used_by_a_variant_and_the_other_way_round():
    in_model = set(re.findall(r"^#(?:el)?if(?:n?def| defined\() *(\w+)", MODEL.read_text(), re.MULTILINE))
    in_model |= set(re.findall(r"defined\((\w+)\)", MODEL.read_text()))
    in_variants = {option.partition("=")[0] for variant in check.VARIANTS for option in variant.options}
    assert in_model | {"WITNESS"} == in_variants


def test_a_surprise_fails_the_command(monkeypatch):
    surprise = replace(FAST, expected=Outcome.HOLDS)
    for variants, status in (((FAST,), 0), ((surprise,), 1)):
        monkeypatch.setattr(check, "VARIANTS", variants)
        monkeypatch.setattr(check, "check", lambda variant: Checked(variant, Outcome.VIOLATED, 1000, 20, 0.1))
        result = CliRunner().invoke(check.main)
        assert result.exit_code == status
        assert ("NO" in result.output) == bool(status)


def test_it_says_how_far_it_is_and_fits_into_100_columns(monkeypatch):
    monkeypatch.setattr(
        check, "check", lambda variant: Checked(variant, variant.expected, 9_999_999, 20, 99.9)
    )
    result = CliRunner().invoke(check.main)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert {line[-1] for line in lines} <= set("┓┃┩│┤┘"), "no column is cut off"
    for variant in check.VARIANTS:
        for option in variant.options:
            assert option in result.stdout, "no option is cut"
    said = result.stderr.splitlines()
    assert len(said) == len(check.VARIANTS)
    assert said[-1].startswith(f"{len(said)} of {len(said)}, 100 s: ")


def test_a_model_that_spin_cannot_read_is_an_error_and_no_result(tmp_path):
    broken = tmp_path / "broken.pml"
    broken.write_text("active proctype P() { assert( }")
    with pytest.raises(CheckerFailed, match=r"spin -a broken\.pml ended with"):
        check.check(Variant("broken"), broken)


@pytest.mark.slow
def test_a_search_that_was_cut_short_is_an_error_and_no_result(tmp_path, monkeypatch):
    deep = tmp_path / "deep.pml"
    deep.write_text("active proctype P() { int n; do :: n < 10000 -> n++ :: n == 10000 -> break od }")
    monkeypatch.setattr(check, "DEPTH", 100)
    with pytest.raises(CheckerFailed, match="not carried through"):
        check.check(Variant("deep"), deep)


@pytest.mark.slow
def test_an_end_that_nobody_meant_is_no_result_either(tmp_path):
    stuck = tmp_path / "stuck.pml"
    stuck.write_text("bool told; active proctype P() { told }")
    with pytest.raises(CheckerFailed, match="found something else"):
        check.check(Variant("stuck"), stuck)


def test_a_missing_tool_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CheckerFailed, match=r"\.ci/need-debian spin=spin"):
        check.check(FAST)


def test_the_protocol_as_meant_has_no_mistake_compiled_in():
    harmless = {
        "PREPARE_FIRST",
        "SEEN_FIRST",
        "ONE_RESOLVER",
        "LIVENESS",
        "BUDGET=1",
    }  # the first two with what is asserted below
    mistakes = {option for variant in MISTAKES for option in variant.options} - harmless
    assert not mistakes & {option for variant in (*MEANT, *REACHED) for option in variant.options}
    assert all("MARKS_KEPT" in variant.options for variant in MEANT if "PREPARE_FIRST" in variant.options)
    assert all("FORCES_FIRST" in variant.options for variant in MEANT if "SEEN_FIRST" in variant.options)
