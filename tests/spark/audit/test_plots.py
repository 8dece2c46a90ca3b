"""Test that the plots of the audit's page show the figures, and times as exactly as necessary."""

import re

import pytest

from spark.audit.report import plots

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


def test_the_figure_of_proofs_has_each_share_and_names_what_is_proven_by_nothing():
    shown = plots.proofs({"archive": 600, "journal": 300, "checkpoint": 0, "reports": 0, "nothing": 100})
    widths = dict(re.findall(r'class="by_(\w+)" style="width: ([\d.]+)%"', shown))
    assert widths == {"archive": "60.00", "journal": "30.00", "nothing": "10.00"}
    assert re.search(r"by nothing: sound and in their place[^<]*<b>100</b> <span[^>]*>10.0 %", shown)
    assert "in the checkpoint <b>0</b>" in shown, "what proves nothing here is said, too"


def test_without_messages_nothing_is_to_be_proven():
    assert "no messages" in plots.proofs(dict.fromkeys(plots.PROOFS, 0))


NARROW, WIDE = 260, 540
"""Pixels across a plot on a telephone, and on the narrowest page (600 px) that shows all labels."""
LETTER = 6.7
"""Pixels, on the average, in the page's font of 12 px."""


def spans(shown, width):
    """From where to where the labels below the bars reach."""
    found = []
    for spare, at, anchor, text in re.findall(
        r'<text( class="spare")? x="([\d.]+)%" y="\d+" text-anchor="(\w+)">([^<]*)', shown
    ):
        if not (spare and width == NARROW):
            begin = (
                float(at) * width / 100 - len(text) * LETTER * {"start": 0, "middle": 0.5, "end": 1}[anchor]
            )
            found.append((begin, begin + len(text) * LETTER))
    return found


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("bars", range(1, 40))
def test_no_label_runs_into_the_next_one_or_out_of_the_figure(bars, width):
    histogram = plots.histogram([[1 << power, 1] for power in range(9, 9 + bars)], "by how long")
    windows = plots.windows({"from": AT, "length": SECOND, "bars": [[place, 1] for place in range(bars)]})
    for shown in (histogram, windows):
        found = spans(shown, width)
        assert found
        assert all(
            end < begin for (_, end), (begin, _) in zip(sorted(found), sorted(found)[1:], strict=False)
        )
        assert found[0][0] > -60
        assert all(end < width + 24 for _, end in found)


def test_an_outcome_says_its_number_and_has_a_bar_of_its_share():
    rows = [
        {"state": "committed", "cause": "client", "transactions": 1000, "messages": 2000},
        {"state": "rolled_back", "cause": None, "transactions": 250, "messages": 1},
    ]
    shown = plots.outcomes(rows)
    assert re.findall(r"<span>(.*?)</span>", shown) == ["committed (client)", "rolled back"]
    assert "1,000 transactions, 2,000 messages" in shown
    assert "250 transactions, 1 message<" in shown
    assert re.findall(r'class="share (\w+)" style="width: ([\d.]+)%"', shown) == [
        ("committed", "100.0"),
        ("rolled_back", "25.0"),
    ]
