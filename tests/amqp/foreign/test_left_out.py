"""Test that the tables of what is left out are held against what has run."""

from tests.amqp.foreign.left_out import Expectation, LeftOut

NO_TLS = LeftOut("TLS", ("a::tls*",))


def test_what_passes_is_nothing_to_complain_of():
    assert not Expectation(1).complaints({"a::one": "passed"})


def test_what_is_left_out_may_fail_or_be_skipped():
    outcomes = {"a::one": "passed", "a::tls[1]": "failure", "a::tls[2]": "skipped"}
    assert not Expectation(3, (NO_TLS,)).complaints(outcomes)


def test_what_fails_and_is_not_left_out_is_told():
    assert Expectation(1).complaints({"a::one": "failure: why"}) == ["a::one: failure: why"]


def test_what_is_left_out_and_passes_is_told():
    assert Expectation(1, (NO_TLS,)).complaints({"a::tls": "passed"}) == [
        "a::tls passes, and is left out: TLS"
    ]


def test_a_pattern_that_stands_for_no_case_is_told():
    assert Expectation(1, (NO_TLS,)).complaints({"a::one": "passed"}) == [
        "no case is named a::tls* (left out: TLS)"
    ]


def test_a_case_that_is_gone_is_told():
    assert Expectation(2).complaints({"a::one": "passed"}) == ["1 cases ran, the table says 2"]


def test_what_passes_on_some_days_only_may_do_either():
    for outcome in ("passed", "failure"):
        assert not Expectation(1, either=(NO_TLS,)).complaints({"a::tls": outcome})
