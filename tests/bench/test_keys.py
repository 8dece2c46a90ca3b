"""Test which keys messages get."""

from collections import Counter
from itertools import islice

import pytest

from txbroker.bench import keys


def drawn(text, seed=1, number=20_000):
    choose = keys.chooser(text, seed)
    return Counter(islice(iter(choose, object()), number))


@pytest.mark.parametrize("text", ["none", "1", "1000", "zipf:50"])
def test_what_can_be_said_is_taken(text):
    assert keys.check(text) == text


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "many", "zipf", "zipf:", "zipf:0", "zipf:x", "1.5", "99999999"]
)
def test_what_makes_no_sense_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="zipf:1000"):
        keys.check(text)


def test_without_keys_there_is_none():
    assert drawn("none") == {None: 20_000}


def test_a_number_of_keys_is_spread_evenly():
    found = drawn("10")
    assert set(found) == {b"%d" % key for key in range(10)}
    assert max(found.values()) < 1.2 * min(found.values())


def test_a_few_keys_come_much_more_often_by_zipfs_law():
    found = drawn("zipf:100")
    assert found[b"0"] == pytest.approx(2 * found[b"1"], rel=0.1)
    assert found[b"0"] == pytest.approx(4 * found[b"3"], rel=0.2)
    assert set(found) <= {b"%d" % key for key in range(100)}


def test_each_seed_draws_its_own_keys_and_always_the_same():
    assert drawn("100", 1) == drawn("100", 1) != drawn("100", 2)
