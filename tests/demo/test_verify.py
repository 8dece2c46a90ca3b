"""Test the demo's verification: each promise is broken on purpose, and that is noticed."""

from types import SimpleNamespace

import pytest

from demo.source import FLIGHTS, WEATHER, Day, Row
from demo.verify import EXAMPLES, Verifier, headers_for


def days():
    numbers = iter(range(1, 100))
    made = []
    for name in ("2013-01-01", "2013-01-02"):
        flights = [
            Row(FLIGHTS, number, name, carrier, b"%d,%s" % (number, carrier))
            for number, carrier in zip(numbers, (b"UA", b"AA", b"UA", b"AA"), strict=False)
        ]
        weather = [Row(WEATHER, len(made) + 1, name, b"EWR", b"w%d" % len(made))]
        made.append(Day(name, flights + weather))
    return made


def partition_of(row):
    return 1 if row.key == b"AA" else 0


def read_back(rows):
    """What a consumer reads if these rows were committed in this order."""
    ends, messages = {}, []
    for row in rows:
        place = row.topic, partition_of(row)
        offset = ends[place] = ends.get(place, -1) + 1
        messages.append(
            SimpleNamespace(
                topic=row.topic,
                partition=place[1],
                offset=offset,
                key=row.key,
                value=row.line,
                headers=headers_for(row),
            )
        )
    return messages


def all_rows():
    return [row for day in days() for row in day.rows]


def judged(messages):
    verifier = Verifier(days())
    verifier.take(messages)
    return verifier.verdict()


def test_a_year_that_came_back_whole_is_good():
    verdict = judged(read_back(all_rows()))
    assert verdict.good
    assert not verdict.faults
    assert verdict.rows == {FLIGHTS: 8, WEATHER: 2}


def test_it_may_be_read_partition_by_partition():
    messages = sorted(read_back(all_rows()), key=lambda message: (message.topic, message.partition))
    assert judged(messages).good


def test_a_missing_row_is_noticed_and_its_day_is_half_there():
    verdict = judged(read_back([row for row in all_rows() if row.number != 3]))
    assert verdict.faults == {"missing": 1, "half a day": 1}
    assert "2013-01-01" in verdict.examples[-1]


def test_a_missing_day_is_noticed_but_not_half_there():
    verdict = judged(read_back([row for row in all_rows() if row.day == "2013-01-01"]))
    assert verdict.faults == {"missing": 5}


def test_a_day_with_its_flights_but_without_its_weather_is_half_there():
    gone = Row(WEATHER, 2, "2013-01-02", b"EWR", b"w1")
    verdict = judged(read_back([row for row in all_rows() if row != gone]))
    assert verdict.faults == {"missing": 1, "half a day": 1}


def test_a_row_that_came_twice_is_noticed():
    rows = all_rows()
    verdict = judged(read_back([*rows, rows[-1]]))
    assert verdict.faults == {"read twice": 1}


def test_a_day_sent_twice_is_noticed_row_by_row_and_in_its_order():
    rows = all_rows()
    verdict = judged(read_back([*rows[:5], *rows]))
    assert verdict.faults["read twice"] == 5
    assert verdict.faults["out of order"] == 2


def test_two_rows_of_a_carrier_in_the_wrong_order_are_noticed():
    rows = all_rows()
    rows[0], rows[2] = rows[2], rows[0]
    assert judged(read_back(rows)).faults == {"out of order": 1}


def test_rows_of_different_carriers_owe_each_other_no_order():
    rows = all_rows()
    rows[0], rows[1] = rows[1], rows[0]
    assert judged(read_back(rows)).good


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"1,UB"},
        {"value": None},
        {"key": b"AA"},
        {"key": None},
        {"headers": (("day", b"2013-01-02"), ("row", b"1"))},
        {"headers": (("day", b"2013-01-01"), ("row", b"1"), ("more", b""))},
    ],
)
def test_a_byte_that_differs_is_noticed_and_does_not_count_as_the_row(change):
    messages = read_back(all_rows())
    vars(messages[0]).update(change)
    assert judged(messages).faults == {"altered": 1, "missing": 1, "half a day": 1}


@pytest.mark.parametrize("number", [b"99", b"", b"x", b"-1"])
def test_a_message_of_no_row_is_noticed(number):
    rows = all_rows()
    messages = read_back([*rows, rows[-1]])
    messages[-1].headers = (("day", b"2013-01-01"), ("row", number))
    assert judged(messages).faults == {"not in the source": 1}


def test_a_carrier_in_two_partitions_is_noticed():
    messages = read_back(all_rows())
    stray = next(m for m in reversed(messages) if m.key == b"UA")
    stray.partition, stray.offset = 3, 0
    assert judged(messages).faults == {"key in two partitions": 1}


def test_an_offset_that_is_skipped_or_repeated_is_noticed():
    messages = read_back(all_rows())
    messages[-1].offset += 1
    assert judged(messages).faults == {"offsets broken": 1}


def test_many_faults_of_a_kind_are_counted_but_told_only_a_few_times():
    verdict = judged([])
    assert verdict.faults == {"missing": 10}
    assert len(verdict.examples) == EXAMPLES
