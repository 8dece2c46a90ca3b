"""Test how often handlers fail on purpose: for most messages never, for some always, and never in between for long."""

from collections import Counter

from txbroker.drill.clients.fate import ALWAYS, failures_of
from txbroker.drill.plan.plan import POLICY


def test_the_same_message_has_the_same_fate():
    fates = [failures_of("feeder-1.1", operation, 3) for operation in range(500)]
    assert fates == [failures_of("feeder-1.1", operation, 3) for operation in range(500)]
    assert fates != [failures_of("feeder-1.2", operation, 3) for operation in range(500)]


def test_most_succeed_at_once_and_all_others_well_before_they_are_given_up_but_for_poison():
    fates = Counter(failures_of("feeder-1.1", 1, number) for number in range(10_000))
    assert set(fates) == {0, 1, 2, ALWAYS}
    assert 8_000 < fates[0] < 9_500
    assert 100 < fates[ALWAYS] < 300
    assert POLICY.attempts - 2 > 2, "a message that fails twice may be lost with two workers"
