"""Test the rows of the demo, read from the package's files."""

import pytest

from demo.source import FLIGHTS, TOPICS, WEATHER, Row, SourceError, by_day, csv_bytes, read_year, rows_of

HEADER = b"year,month,day,carrier,dest\n"


@pytest.fixture(scope="module")
def year():
    return read_year()


@pytest.fixture(scope="module")
def rows(year):
    return {topic: [row for day in year for row in day.rows if row.topic == topic] for topic in TOPICS}


@pytest.mark.slow
def test_a_year_has_every_row_of_both_files(year, rows):
    assert {topic: len(found) for topic, found in rows.items()} == {FLIGHTS: 336_776, WEATHER: 26_115}
    assert len(year) == len({day.name for day in year}) == 365


@pytest.mark.slow
def test_every_row_is_a_line_of_its_file_byte_for_byte(rows):
    for topic, found in rows.items():
        lines = csv_bytes(topic).splitlines()[1:]
        assert sorted(row.number for row in found) == list(range(1, len(lines) + 1))
        assert all(row.line == lines[row.number - 1] for row in found)


@pytest.mark.slow
def test_the_days_come_so_that_flights_keep_the_order_of_their_file(rows):
    numbers = [row.number for row in rows[FLIGHTS]]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_weather_keeps_the_order_of_its_file_within_a_day(year):
    for day in year:
        numbers = [row.number for row in day.rows if row.topic == WEATHER]
        assert numbers == sorted(numbers)


@pytest.mark.slow
def test_a_day_without_weather_is_a_day_all_the_same(year):
    last = next(day for day in year if day.name == "2013-12-31")
    assert {row.topic for row in last.rows} == {FLIGHTS}


@pytest.mark.slow
def test_missing_values_stay_as_they_are(rows):
    assert any(b",NA," in row.line for row in rows[FLIGHTS])
    assert any(b",NA," in row.line for row in rows[WEATHER])


@pytest.mark.slow
def test_flights_are_keyed_by_carrier_and_weather_by_airport(rows):
    assert len({row.key for row in rows[FLIGHTS]}) == 16
    assert {row.key for row in rows[WEATHER]} == {b"EWR", b"JFK", b"LGA"}


def test_a_row_knows_its_day_its_key_and_its_place_in_the_file():
    csv = HEADER + b"2013,1,9,UA,IAH\n2013,12,31,AA,MIA\n"
    assert list(rows_of(FLIGHTS, csv)) == [
        Row(FLIGHTS, 1, "2013-01-09", b"UA", b"2013,1,9,UA,IAH"),
        Row(FLIGHTS, 2, "2013-12-31", b"AA", b"2013,12,31,AA,MIA"),
    ]


def test_a_day_of_one_table_alone_is_not_lost():
    flight = Row(FLIGHTS, 1, "2013-01-01", b"UA", b"")
    weather = Row(WEATHER, 1, "2013-01-02", b"EWR", b"")
    assert [(day.name, day.rows) for day in by_day([[flight], [weather]])] == [
        ("2013-01-01", [flight]),
        ("2013-01-02", [weather]),
    ]


@pytest.mark.parametrize(
    ("csv", "reason"),
    [
        (b'year,month,day,carrier\n2013,1,1,"UA"\n', "quotes"),
        (b"year,month,day,carrier\r\n2013,1,1,UA\r\n", "carriage"),
        (b"year,month,carrier\n2013,1,UA\n", "lacks the columns day"),
        (HEADER + b"2013,1,1,UA\n", "row 1 of flights has 4 fields"),
    ],
)
def test_a_file_that_is_not_the_known_one_is_refused(csv, reason):
    with pytest.raises(SourceError, match=reason):
        list(rows_of(FLIGHTS, csv))
