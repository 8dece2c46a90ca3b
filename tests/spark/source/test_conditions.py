"""Test the option ``where``: it is understood exactly, or refused with a form that works."""

import pytest

from journal.errors import InvalidSetting
from spark.source.conditions import conditions
from spark.source.pushdown import Wanted
from tests.spark.source.test_pushdown import DATA, read_heads


def offsets(text):
    return conditions(text).rows(read_heads(DATA, 0)[0]).offset.tolist()


def test_conditions_hold_all_at_once():
    wanted = conditions("topic IN ('a', 'b') and PARTITION <= 3 AND topic = 'b' AND offset > 5 AND offset<=9")
    assert [(t, p) for t in "abc" for p in range(6) if wanted.allows(t, p)] == [("b", p) for p in range(4)]
    assert (wanted.offset.least, wanted.offset.most) == (6, 9)
    assert conditions("  ") == Wanted()


def test_times_and_sets_choose_rows():
    assert offsets("timestamp >= '1970-01-01T00:00:18+00:00'") == [18, 19]
    assert offsets("timestamp < '1970-01-01T01:00:02+01:00'") == [0, 1]
    assert offsets("offset in (3,4, 99)") == [3, 4]
    assert offsets("timestamp = '1970-01-01T00:00:18+00:00' AND offset = 3") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("offset >= 5 OR partition = 1", "'offset >= 5 OR partition = 1' is not understood"),
        ("offset != 5", "is not understood"),
        ("value = 'x'", "'value' is no column that can be chosen by"),
        ("offset = 'x'", "a value is not of its column's type"),
        ("topic = 5", "a value is not of its column's type"),
        ("topic > 'a'", "a value is not of its column's type"),
        ("timestamp > '2026-01-01'", "no time with its zone"),
        ("offset > 5 AND", "is not understood"),
    ],
)
def test_what_is_not_understood_is_refused_with_an_example(text, told):
    with pytest.raises(InvalidSetting) as caught:
        conditions(text)
    assert told in str(caught.value)
    assert "wanted are conditions joined by AND, such as topic = 'orders'" in str(caught.value)
