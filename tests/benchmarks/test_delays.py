"""Test that ``python -m benchmarks.delays`` measures what it says."""

import re

import pytest
from click.testing import CliRunner

from benchmarks import delays
from benchmarks.delays import Row


@pytest.mark.slow
def test_lateness_a_burst_and_memory_are_measured_and_no_data_is_left(tmp_path):
    folder = tmp_path / "data"
    words = [
        "--waiting",
        "2000",
        "--single",
        "50",
        "--burst",
        "500",
        "--rate",
        "500",
        "--settle",
        "0.2",
        "--folder",
    ]
    ended = CliRunner().invoke(delays.main, [*words, str(folder)], catch_exceptions=False)
    assert ended.exit_code == 0
    found = dict(re.findall(r"│ (\S.*?) +│ +(-?[\d.,]+) \w+(?:  missed)? +│", ended.output))
    assert list(found) == [
        "lateness alone: p50",
        "lateness alone: p99",
        "500 due in one second: all out after",
        "lateness beside 500 sends/s: p50",
        "lateness beside 500 sends/s: p99",
        "2,000 x 100 B due within the hour: resident",
        "2,000 x 100 B due within a year: resident",
    ]
    assert 0 < float(found["lateness alone: p50"]) <= float(found["lateness alone: p99"])
    assert 0.9 < float(found["500 due in one second: all out after"]) < 20
    assert not folder.exists()


def test_the_table_marks_what_misses_its_target():
    table = delays.table([Row("some", 1.0, 1.0, "ms"), Row("others", 1234.56, 1000.0, "MiB")])
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert rows == [
        ("some", "1.0 ms", "1.0 ms"),
        ("others", "1,234.6 MiB  missed", "1,000.0 MiB"),
    ]
