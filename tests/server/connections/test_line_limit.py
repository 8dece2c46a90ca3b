"""Test that lines about strangers are few, and that those left out are counted."""

from txbroker.server.connections.line_limit import BURST, RATE, SPAN, LineLimit


def allowed(limit, at, count):
    return sum(limit.allows(at) for _ in range(count))


def test_some_lines_may_come_at_once_and_then_one_a_second():
    limit = LineLimit()
    assert allowed(limit, 100.0, 1000) == BURST
    assert sum(allowed(limit, 100.0 + tenth / 10, 100) for tenth in range(1, 101)) == 10 * RATE
    assert allowed(limit, 10_000.0, 1000) == BURST


def test_those_left_out_are_counted_and_told_now_and_then():
    limit = LineLimit()
    allowed(limit, 100.0, BURST)
    assert limit.left_out(100.0) == 0, "none was"
    allowed(limit, 100.0, 7)
    assert limit.left_out(100.5) == 7
    allowed(limit, 100.5, 5)
    assert limit.left_out(100.4 + SPAN) == 0
    assert limit.left_out(100.5 + SPAN) == 5
    assert limit.left_out(100.5 + 2 * SPAN) == 0


def test_a_clock_that_goes_back_gives_no_credit():
    limit = LineLimit()
    allowed(limit, 100.0, BURST)
    assert not limit.allows(50.0)
    assert limit.allows(51.0)
