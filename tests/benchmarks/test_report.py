"""Test the table and the JSON of a run."""

import io
import json

from rich.console import Console

from benchmarks import figure_tables, figures
from benchmarks.runs import Usage

SAMPLES = {
    figures.SEQUENTIAL.name: [1000.0],
    figures.SINGLES.name: [99_000.0, 120_000.0, 90_000.0],
    figures.CLIENTS.name: [30_000.0],
    figures.ECHO.name: [40_000.0],
}
USAGES = {"singles": [Usage(0.9, 0.3, 7.5)]}


def shown():
    output = io.StringIO()
    figure_tables.show(figures.results(SAMPLES), USAGES, Console(file=output, width=200))
    return output.getvalue()


def line_with(text):
    [line] = [line for line in shown().splitlines() if text in line]
    return line


def test_a_line_holds_the_median_the_range_the_limit_the_ratio_and_the_verdict():
    line = line_with("depth 1, 64 clients")
    for part in ("30,000", "40,000", "0.75", "≥ 0.6 × limit", "yes"):
        assert part in line


def test_a_missed_target_is_shown_as_missed():
    line = line_with("100 B singles, pipelined")
    assert "90,000 – 120,000" in line
    assert "NO" in line


def test_it_shows_which_side_was_busy():
    assert "7.5" in line_with("0.90")


def test_the_json_has_every_sample():
    found = json.loads(figure_tables.document(figures.results(SAMPLES), SAMPLES, USAGES, {"seconds": 1.0}))
    singles = next(one for one in found["figures"] if one["name"] == figures.SINGLES.name)
    assert singles["samples"] == SAMPLES[figures.SINGLES.name]
    assert singles["met"] is False
    assert found["settings"] == {"seconds": 1.0}
    assert found["processors_busy"] == {"singles": [{"broker": 0.9, "generator": 0.3, "cost": 7.5}]}


def test_numbers_have_as_many_digits_as_mean_something():
    assert [figure_tables.number(one) for one in (123_456.7, 99.46, 0.0312, None)] == [
        "123,457",
        "99.5",
        "0.0312",
        "",
    ]
