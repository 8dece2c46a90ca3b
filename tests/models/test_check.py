"""Test that the protocols of `txbroker.atomic` and of outbox streams hold in every interleaving, and that the checker
finds every mistake.
"""

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from models import check
from models.check import (
    ATOMIC,
    ATOMIC_PROTOCOL,
    OUTBOX,
    OUTBOX_PROTOCOL,
    PROTOCOLS,
    Checked,
    CheckerFailed,
    Outcome,
    Variant,
)

FAST = ATOMIC_PROTOCOL.mistakes[0]
LARGE = {
    "once, in order, none lost, always",
    "the same, set back, with stamps",
    "rows are delivered and go, the entry too",
    "the same, it compares generations",
    "an epoch comes again after a restart",
    "another stream catches up (known)",
}
"""Variants of outboxes with millions of states, for which `make model` and `make test-deep` have the time."""


def _param(variant):
    marks = [pytest.mark.deep] if variant.model == OUTBOX and variant.name in LARGE else []
    return pytest.param(variant, id=variant.name, marks=marks)


@pytest.mark.slow
@pytest.mark.sampled(1, test=16)
@pytest.mark.parametrize("variant", [_param(variant) for variant in check.VARIANTS])
def test_the_checker_says_of_each_variant_what_it_must(variant):
    checked = check.check(variant)
    assert checked.outcome is variant.expected
    ends_early = variant.model == OUTBOX and variant.expected is not Outcome.HOLDS
    assert checked.states > (25 if ends_early else 100)


@pytest.mark.slow
def test_the_way_to_a_mistake_can_be_read():
    steps = check.counterexample(FAST)
    assert "state = ROLLED_BACK" in steps
    assert "row = 1" in steps
    assert re.search(r"Error: assertion violated", steps)


@pytest.mark.slow
def test_a_trace_is_that_of_the_mistake_also_if_a_variant_that_holds_has_the_option():
    for option in ("SEEN_FIRST", "LAST_UNCHECKED"):
        result = CliRunner().invoke(check.main, ["--trace", option])
        assert result.exit_code == 0
        assert "Error: assertion violated" in result.stdout


@pytest.mark.parametrize(
    ("model", "protocol"), [(ATOMIC, ATOMIC_PROTOCOL), (OUTBOX, OUTBOX_PROTOCOL)], ids=["atomic", "outbox"]
)
def test_every_option_of_a_model_is_used_by_a_variant_and_the_other_way_round(model, protocol):
    assert all(variant.model == model for variant in protocol.variants)
    in_model = set(re.findall(r"^#(?:el)?if(?:n?def| defined\() *(\w+)", model.read_text(), re.MULTILINE))
    in_model |= set(re.findall(r"defined\((\w+)\)", model.read_text()))
    in_model |= set(re.findall(r"^#(?:el)?if (\w+) [=<>]", model.read_text(), re.MULTILINE))
    in_variants = {option.partition("=")[0] for variant in protocol.variants for option in variant.options}
    assert in_model == in_variants


def test_an_option_that_a_trace_is_asked_for_by_belongs_to_one_model():
    common = {"ONE_RESOLVER", "LIVENESS", "BUDGET=1"}
    options = [{option for variant in each.variants for option in variant.options} for each in PROTOCOLS]
    assert set.intersection(*options) <= common


def test_what_is_left_to_deep_tests_is_there():
    assert {variant.name for variant in OUTBOX_PROTOCOL.variants} > LARGE


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
        check.check(Variant("broken", model=broken))


@pytest.mark.slow
def test_a_search_that_was_cut_short_is_an_error_and_no_result(tmp_path, monkeypatch):
    deep = tmp_path / "deep.pml"
    deep.write_text("active proctype P() { int n; do :: n < 10000 -> n++ :: n == 10000 -> break od }")
    monkeypatch.setattr(check, "DEPTH", 100)
    with pytest.raises(CheckerFailed, match="not carried through"):
        check.check(Variant("deep", model=deep))


@pytest.mark.slow
def test_an_end_that_nobody_meant_is_no_result_either(tmp_path):
    stuck = tmp_path / "stuck.pml"
    stuck.write_text("bool told; active proctype P() { told }")
    with pytest.raises(CheckerFailed, match="found something else"):
        check.check(Variant("stuck", model=stuck))


def test_a_missing_tool_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CheckerFailed, match=r"\.ci/need-debian spin=spin"):
        check.check(FAST)


# Mistakes only where what is asserted below is not there.
HARMLESS = {
    "PREPARE_FIRST",
    "SEEN_FIRST",
    "LAST_UNCHECKED",
    "OTHER",
    "SET_BACK",
    "ONLY_COMMITS",
    "N=1",
    "ONE_RESOLVER",
    "LIVENESS",
    "BUDGET=1",
    "SAVEPOINTS",
}


def test_a_protocol_as_meant_has_no_mistake_compiled_in():
    for protocol in PROTOCOLS:
        mistakes = {option for variant in protocol.mistakes for option in variant.options} - HARMLESS
        right = (*protocol.meant, *protocol.reached)
        assert not mistakes & {option for variant in right for option in variant.options}
        for mistake, needs in (
            ("PREPARE_FIRST", "MARKS_KEPT"),
            ("SEEN_FIRST", "FORCES_FIRST"),
            ("LAST_UNCHECKED", "WAITS"),
            ("OTHER", "STAMPS"),
        ):
            assert all(needs in variant.options for variant in protocol.meant if mistake in variant.options)
