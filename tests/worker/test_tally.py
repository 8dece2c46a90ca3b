"""Test the line that says what a worker has done."""

from txbroker.worker.tally import Tally


def test_a_report_has_what_was_done_since_the_last_one():
    tally = Tally()
    tally.begin(100.0)
    tally.handled, tally.failed = 1200, 2
    assert tally.line(160.0, "billing", 8, 310) == (
        "group billing: 1,200 messages handled in 60 s (20.0/s), 2 failed, 8 under way, lag 310"
    )
    tally.handled, tally.again, tally.lost = 1, 3, 5
    assert tally.line(170.0, "billing", 0, None) == (
        "group billing: 1 message handled in 10 s (0.1/s), 0 failed, 3 begun again, 5 lost to other consumers, "
        "0 under way, lag unknown"
    )
