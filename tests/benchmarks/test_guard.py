"""Test the guard of instructions: two counts agree, and what takes more than its budget is found."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.guard import __main__ as guard
from benchmarks.guard.__main__ import Count, CountFailed, counted, judged, read_budget, written

SAID = "20\tunit\n10\tsend\n"
DUMPS = ["totals: 999\n", "events: Ir\ntotals: 2000\n", "totals: 5\n", "totals: 5000\n"]


def test_a_piece_is_what_was_counted_between_its_marks():
    assert counted(SAID, DUMPS) == {"unit": Count(100, 1.0), "send": Count(500, 5.0)}


@pytest.mark.parametrize(
    ("said", "dumps"), [("", DUMPS), (SAID, DUMPS[:3]), (SAID, []), ("10\tsend\n", DUMPS[2:])]
)
def test_counts_that_do_not_belong_to_pieces_are_an_error(said, dumps):
    with pytest.raises(CountFailed):
        counted(said, dumps)


def test_more_than_the_budget_is_over_it_and_less_is_not():
    budget = {"a": Count(1000, 10.0), "b": Count(1000, 10.0), "c": Count(1000, 10.0)}
    found = {"a": Count(1029, 10.29), "b": Count(1031, 10.31), "c": Count(500, 5.0)}
    assert [(each.name, each.over) for each in judged(found, budget, same=True)] == [
        ("a", False), ("b", True), ("c", False)
    ]  # fmt: skip


def test_on_another_interpreter_units_are_compared_and_more_is_allowed():
    budget = {"a": Count(1000, 10.0), "b": Count(1000, 10.0)}
    found = {"a": Count(9000, 11.4), "b": Count(100, 11.6)}
    assert [each.over for each in judged(found, budget, same=False)] == [False, True]


def test_what_has_no_budget_is_over_it_and_what_was_not_counted_is_an_error():
    [verdict] = judged({"unit": Count(1, 1.0), "new": Count(1, 1.0)}, {}, same=True)
    assert (verdict.name, verdict.over) == ("new", True)
    with pytest.raises(CountFailed, match="gone"):
        list(judged({"unit": Count(1, 1.0)}, {"gone": Count(1, 1.0)}, same=True))


def test_a_budget_is_read_as_it_was_written(tmp_path):
    found = {"unit": Count(2403, 1.0), "send": Count(161_832, 67.35)}
    (tmp_path / "budget.json").write_text(written("compiled", found))
    assert read_budget(tmp_path / "budget.json") == (guard.interpreter("compiled"), found)


def test_without_valgrind_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    ended = CliRunner().invoke(guard.main)
    assert ended.exit_code == 2
    assert "apt-get install valgrind" in ended.output


@pytest.mark.parametrize(
    "build", [pytest.param("pure", marks=pytest.mark.slow), pytest.param("compiled", marks=pytest.mark.deep)]
)
def test_the_broker_stays_within_its_budget(tmp_path, build):
    ended = CliRunner().invoke(guard.main, [build, "--json", str(tmp_path / "found.json")])
    assert ended.exit_code == 0, ended.output
    pieces = json.loads((tmp_path / "found.json").read_text())[build]["pieces"]
    alone, together = pieces["send, alone"][0], pieces["send, 64 in one read"][0]
    assert together < alone / 2, "what is common to a group is shared by its messages"
    assert 2000 < pieces["unit"][0] < 4000


@pytest.mark.deep
def test_a_longer_way_of_a_message_is_seen(tmp_path, monkeypatch):
    budget = json.loads(guard.BUDGETS["pure"].read_text())
    budget["interpreter"] = guard.interpreter("pure")
    for name, (instructions, units) in budget["pieces"].items():
        if name.startswith("send, alone"):
            budget["pieces"][name] = [int(instructions * 0.8), units * 0.8]
    changed = tmp_path / "budget.json"
    changed.write_text(json.dumps(budget))
    monkeypatch.setitem(guard.BUDGETS, "pure", changed)
    ended = CliRunner().invoke(guard.main, ["pure"])
    assert ended.exit_code == 1, ended.output
    assert "Over the budget: send, alone (pure)." in ended.output
