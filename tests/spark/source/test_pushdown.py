"""Test filters: those that are taken over hold exactly, and all others are left to Spark."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark.source.message_heads import read_heads
from spark.source.pushdown import Wanted
from tests.spark.source.test_message_heads import block

DATA = block([[(b"x", n * 1_000_000, None, {}) for n in range(20)]])


def chosen(*filters):
    wanted = Wanted()
    assert list(wanted.take(filters)) == []
    return wanted.rows(read_heads(DATA, 0)[0]).offset.tolist()


def at(second):
    return datetime.fromtimestamp(second, UTC)


@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        ([GreaterThan(("timestamp",), at(16))], [17, 18, 19]),
        ([GreaterThanOrEqual(("timestamp",), at(17)), LessThan(("timestamp",), at(19))], [17, 18]),
        ([LessThanOrEqual(("timestamp",), at(1))], [0, 1]),
        ([EqualTo(("timestamp",), at(5))], [5]),
        ([In(("timestamp",), (at(5), at(7), at(99)))], [5, 7]),
        ([In(("offset",), (3, 9))], [3, 9]),
        ([In(("offset",), (3, 9)), In(("timestamp",), (at(9), at(10)))], [9]),
        ([IsNotNull(("offset",)), IsNotNull(("topic",))], list(range(20))),
    ],
)
def test_rows_are_chosen_as_the_filters_say(filters, offsets):
    assert chosen(*filters) == offsets


def test_topics_and_partitions_that_no_row_can_come_from_are_not_read():
    wanted = Wanted()
    filters = [In(("topic",), ("a", "b")), EqualTo(("topic",), "a"), LessThan(("partition",), 3)]
    assert list(wanted.take(filters)) == []
    assert [(t, p) for t in "abc" for p in range(5) if wanted.allows(t, p)] == [("a", 0), ("a", 1), ("a", 2)]


def test_what_cannot_be_known_before_is_left_to_spark():
    others = [
        Not(EqualTo(("offset",), 1)),
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("offset",), None),
        EqualTo(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001  (without a zone, on purpose)
        EqualTo(("timestamp",), "2026-01-01"),
        GreaterThan(("headers", "key"), "a"),
    ]
    wanted = Wanted()
    assert list(wanted.take(others)) == others
    assert wanted == Wanted()
