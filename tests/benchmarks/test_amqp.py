"""Test how the figures of PerfTest are read and compared."""

import pytest

from benchmarks.amqp import LOADS, OURS, Measured, figure, ratios, table
from benchmarks.peers.server import PeerFailed

LINE = (
    "id: test, time {second} s, sent: 29196 msg/s, confirmed: {confirmed} msg/s, nacked: 0 msg/s, received: {received} "
    "msg/s, min/median/75th/95th/99th consumer latency: 7338/{latency}/21018/27990/32528 µs, confirm latency: "
    "4640/9811/12814/17217/20878 µs"
)


def output(*values):
    lines = [
        LINE.format(
            second=f"{number + 1}.003", confirmed=f"{value:,}", received=value * 2, latency=f"{value * 3:,}"
        )
        for number, value in enumerate(values)
    ]
    return "\n".join(["id: test, starting producer #0", *lines, "id: test, sending rate avg: 1 msg/s"])


@pytest.mark.parametrize(("load", "times"), list(zip(LOADS, (1, 2, 3), strict=True)))
def test_a_figure_is_the_median_of_the_lines_after_the_warm_up(load, times):
    said = output(1, 1, 1_000, 5_000, 3_000)
    assert figure(said, load.figure) == 3_000 * times


def test_a_load_that_told_nothing_after_the_warm_up_has_failed():
    with pytest.raises(PeerFailed, match="starting producer"):
        figure(output(5, 5), LOADS[0].figure)


def test_ratios_are_taken_round_by_round():
    found = Measured(
        LOADS[0], {OURS: [10.0, 20.0, 30.0], "quorum": [10.0, 40.0, 10.0], "classic": [1.0, 1.0, 1.0]}
    )
    assert ratios(found, "quorum") == "1.00 x (0.50 - 3.00)"
    assert table([found]).row_count == 1
