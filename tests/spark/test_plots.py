"""The plots of the audit's page say what they show, and when, as exactly as it takes."""

from spark.audit import plots

SECOND = 1_000_000
AT = 1_763_749_301 * SECOND
"""2025-11-21 18:21:41 UTC."""


def test_windows_of_seconds_are_told_apart():
    shown = plots.windows({"from": AT, "length": SECOND, "bars": [[0, 5], [1, 7], [2, 9]]})
    assert [f"18:21:4{number}" in shown for number in (1, 2, 3)] == [True, True, True]
    assert "<p" in shown.split("Messages per 1 s")[0], "for people, not only for screen readers"


def test_windows_of_minutes_need_no_seconds():
    shown = plots.windows({"from": AT, "length": 60 * SECOND, "bars": [[0, 5], [1, 7], [2, 9]]})
    assert "2025-11-21 18:21<" in shown
    assert "18:21:41" not in shown
