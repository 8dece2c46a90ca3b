"""Test the delays of failed logins, and that what remembers them is bounded."""

import pytest

from txbroker.login.throttle import DECAY, LONGEST_DELAY, MAX_ENTRIES, MAX_NAMES, FailureTable, network_of


class Seconds:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def table(seconds):
    return FailureTable(seconds)


def test_each_failure_doubles_the_delay_to_some_seconds(table):
    assert [table.failed("a", "alice") for _ in range(7)] == [0.25, 0.5, 1, 2, 4, 4, 4]


def test_failures_are_forgotten_with_time(table, seconds):
    for _ in range(50):
        table.failed("a", "alice")
    seconds.now += 2 * DECAY
    assert table.failed("a", "alice") == 2
    seconds.now += 10 * DECAY
    assert table.failed("a", "alice") == 0.25


def test_nobody_is_delayed_for_what_others_did_at_another_address_or_user(table):
    for _ in range(50):
        table.failed("192.0.2.1", "alice")
    assert table.succeeded("192.0.2.2", "alice") == 0
    assert table.failed("192.0.2.2", "alice") == 0.25
    assert table.failed("192.0.2.1", "bob") == 0.25


def test_good_news_waits_as_long_as_the_refusal_before_it(table, seconds):
    """Else a guesser who hangs up on silence would not be held back at all."""
    for _ in range(5):
        table.failed("a", "alice")
    seconds.now += 1
    assert table.succeeded("a", "alice") == LONGEST_DELAY - 1
    assert table.succeeded("a", "alice") == 0
    assert table.failed("a", "alice") == 0.25


def test_a_network_of_ipv6_counts_as_one_address(table):
    assert table.failed("2001:db8::1", "alice") == 0.25
    assert table.failed("2001:db8::ffff:1", "alice") == 0.5
    assert table.failed("2001:db8:0:1::1", "alice") == 0.25
    assert network_of("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64"
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("x" * 5000) == "x" * 255


def test_names_that_are_made_up_for_an_address_are_counted_as_one(table):
    for number in range(MAX_NAMES):
        assert table.failed("a", f"user{number}") == 0.25
    assert [table.failed("a", f"other{number}") for number in range(5)] == [0.25, 0.5, 1, 2, 4]
    assert table.failed("a", "user0") == 0.5
    assert table.failed("b", "other0") == 0.25
    assert len(table) == MAX_NAMES + 2


@pytest.mark.slow
def test_a_hundred_thousand_addresses_take_no_more_memory_than_ten_thousand(table):
    for number in range(100_000):
        table.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "u" * 64)
    assert len(table) == len(table._names) == MAX_ENTRIES
    assert table.failed("10.1.134.159", "u" * 64) == 0.5, "the last is remembered"
    assert table.failed("10.0.0.0", "u" * 64) == 0.25, "the first is forgotten"


def test_an_address_that_goes_on_failing_is_not_forgotten_for_others(table):
    for number in range(2 * MAX_ENTRIES):
        table.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "alice")
        if number % 5_000 == 0:
            table.failed("192.0.2.1", "alice")
    assert table.failed("192.0.2.1", "alice") == LONGEST_DELAY


def test_an_address_whose_failures_are_forgotten_is_no_more_in_the_table(table):
    table.failed("a", "alice")
    table.succeeded("a", "alice")
    assert len(table) == len(table._names) == 0
