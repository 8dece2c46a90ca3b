"""Test that ``python -m benchmarks.queues`` measures what it says."""

import pytest
from click.testing import CliRunner

from benchmarks import queues
from benchmarks.queues import Row, Sizes, routing


@pytest.mark.slow
def test_publishing_taking_and_routing_are_measured_and_no_data_is_left(tmp_path):
    folder = tmp_path / "data"
    words = [
        "--messages",
        "400",
        "--rounds",
        "2",
        "--queues",
        "4",
        "--bindings",
        "50",
        "--folder",
        str(folder),
    ]
    ended = CliRunner().invoke(queues.main, words, catch_exceptions=False)
    assert ended.exit_code == 0
    for what in (
        "publish beside send to a topic",
        "deliveries of a fan-out to 4 beside those to one",
        "taken and acknowledged in hundreds",
        "taken and acknowledged one by one",
        "routing by a topic exchange with 50 bindings",
    ):
        assert what in ended.output
    assert not folder.exists()


def test_a_row_shows_the_median_and_the_spread():
    assert Row("x", [3.0, 1.0, 2.0], "µs").shown == "2.00 µs (1.00 - 3.00)"


def test_routing_finds_one_queue_for_each_key():
    assert [row.what.split()[3] for row in routing(Sizes(rounds=1, bindings=10))] == ["direct", "topic"]
