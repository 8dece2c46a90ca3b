"""Test the effects of the demo's workers, and their comparison with the source: each fault is made on purpose."""

import pytest

from demo.departures import (
    LATE,
    MALFORMED,
    Departure,
    Effect,
    MalformedRow,
    compare,
    departure_of,
    with_malformed,
)
from demo.flight_worker import departure_in
from demo.source import FLIGHTS, WEATHER, Day, Row
from txbroker import Message

LINE = b"2013,1,%d,517,515,%s,830,819,11,%s,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"


def flight(number, day, carrier, late=b"2"):
    return Row(FLIGHTS, number, f"2013-01-0{day}", carrier, LINE % (day, late, carrier))


def days():
    very_late = b"%d" % LATE
    return [
        Day("2013-01-01", [flight(1, 1, b"UA"), flight(2, 1, b"AA"), Row(WEATHER, 1, "2013-01-01", b"EWR", b"w")]),
        Day("2013-01-02", [flight(3, 2, b"UA", very_late), flight(4, 2, b"AA", b"NA"), flight(5, 2, b"UA")]),
    ]  # fmt: skip


def effects():
    rows = [row for day in days() for row in day.rows if row.topic == FLIGHTS]
    return [Effect(departure_of(row.number, row.line), "worker-1", int(row.number == 3)) for row in rows]


def faults(found):
    return dict(compare(with_malformed(days())[0], found).faults)


def test_a_line_becomes_a_row_of_the_table():
    assert departure_of(7, LINE % (9, b"-3", b"UA")) == Departure(
        7, "2013-01-09", "UA", 1545, "EWR", "IAH", -3
    )
    assert departure_of(7, LINE % (9, b"NA", b"UA")).late is None


def test_the_malformed_row_is_half_a_row_of_the_middle_and_no_flight():
    spoilt, row = with_malformed(days())
    assert [each.number for each in spoilt[1].rows] == [3, MALFORMED, 4, 5]
    assert [each.rows for each in spoilt[:1]] == [each.rows for each in days()[:1]]
    assert (row.key, row.day) == (b"AA", "2013-01-02")
    with pytest.raises(MalformedRow, match="row 0 is no flight: '2013,1,2"):
        departure_of(row.number, row.line)


@pytest.mark.parametrize(("attempts", "is_there"), [(0, False), (1, True)])
def test_what_is_very_late_is_there_at_a_later_attempt(attempts, is_there):
    value = LINE % (1, b"%d" % LATE, b"UA")
    message = Message(FLIGHTS, 0, 1, 1, b"UA", value, (("row", b"3"),), attempts)
    if is_there:
        assert departure_in(message).late == LATE
    else:
        with pytest.raises(Exception, match="row 3 is"):
            departure_in(message)


def test_a_year_of_which_every_effect_is_there_once_is_good():
    verdict = compare(with_malformed(days())[0], effects())
    assert verdict.good
    assert verdict.rows == {FLIGHTS: 5}


def test_carriers_owe_each_other_no_order():
    first, second, *rest = effects()
    assert faults([second, first, *rest]) == {}


def test_an_effect_that_is_missing_is_noticed():
    assert faults(effects()[:4]) == {"effect missing": 1}


def test_an_effect_that_is_there_twice_is_noticed():
    assert faults([*effects(), effects()[-1]]) == {"effect twice": 1}


@pytest.mark.parametrize("change", [{"late": 3}, {"late": None}, {"carrier": "AA"}, {"day": "2013-01-02"}])
def test_an_effect_that_differs_is_noticed_and_does_not_count(change):
    first, *rest = effects()
    other = first._replace(departure=first.departure._replace(**change))
    assert faults([other, *rest]) == {"effect is not that of the row": 1, "effect missing": 1}


@pytest.mark.parametrize("number", [MALFORMED, 6])
def test_an_effect_of_no_row_is_noticed(number):
    more = effects()[0]
    more = more._replace(departure=more.departure._replace(number=number))
    assert faults([*effects(), more]) == {"effect is not that of the row": 1}


def test_effects_of_a_carrier_in_the_wrong_order_are_noticed():
    found = effects()
    found[2], found[4] = found[4], found[2]
    assert faults(found) == {"effects out of order": 1}


def test_a_late_row_that_was_handled_at_its_first_attempt_is_noticed():
    found = effects()
    found[2] = found[2]._replace(attempts=0)
    assert faults(found) == {"late row not tried again": 1}
