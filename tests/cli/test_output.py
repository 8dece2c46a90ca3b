"""Test the output of commands."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from txbroker.cli.output import (
    age_text,
    bytes_json,
    bytes_text,
    cell_text,
    count_text,
    emit,
    json_line,
    size_text,
    table,
    time_text,
    visible,
)


def never():
    raise AssertionError("the other form of output was made")


def test_json_is_one_document_and_nothing_else(capsys):
    emit(True, {"name": "Köln", "n": 1}, never)
    assert json.loads(capsys.readouterr().out) == {"name": "Köln", "n": 1}


def test_a_table_has_its_numbers_on_the_right_and_no_blanks_at_the_line_ends(capsys):
    emit(False, [], lambda: table(("name", "count"), [("a", 1), ("b", 12345)], "nothing"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["a           1", "b      12,345"]
    assert all(line == line.rstrip() for line in lines)


def test_a_table_is_never_cut_where_there_is_no_terminal(capsys):
    long = "x" * 500
    emit(False, [], lambda: table(("a", "b"), [(long, long)], "nothing"))
    assert capsys.readouterr().out.count(long) == 2


@pytest.mark.parametrize(("width", "folded"), [(40, False), (29, False), (28, True)])
def test_a_table_too_wide_for_its_terminal_is_shown_row_by_row_and_breaks_no_short_word(width, folded):
    page = Console(width=width, record=True, file=io.StringIO())
    page.print(table(("number", "state", "xid"), [("4294967343-1", "prepared", "x")] * 2, ""))
    text = page.export_text()
    assert text.count("4294967343-1") == text.count("prepared") == 2
    assert text.count("state") == (2 if folded else 1)


def test_a_table_without_rows_is_a_sentence(capsys):
    emit(False, [], lambda: table(("a",), [], "There are no topics."))
    assert capsys.readouterr().out == "There are no topics.\n"


def test_brackets_in_values_are_text_not_markup(capsys):
    emit(False, [], lambda: table(("a",), [("[red]x[/]",)], ""))
    assert "[red]x[/]" in capsys.readouterr().out


def test_a_stream_of_json_has_one_document_per_line():
    assert json_line({"value": "a\nb", "n": None}) == '{"value":"a\\nb","n":null}'


@given(st.binary())
def test_no_message_can_steer_the_terminal(value):
    assert bytes_text(value).isprintable()


def test_escapes_are_shown_instead_of_obeyed():
    assert visible("\x1b[31mred\x07\n") == "\\x1b[31mred\\x07\\n"
    assert bytes_text(b"\x1b]0;title\x07") == "\\x1b]0;title\\x07"


@pytest.mark.parametrize(
    ("value", "text", "in_json"),
    [
        (b"abc", "abc", "abc"),
        ("Köln".encode(), "Köln", "Köln"),
        (b"\xff\x00", "0xff00", {"base64": "/wA="}),
        (b"", "", ""),
        (None, "–", None),
    ],
)
def test_bytes_are_text_where_they_are_utf_8(value, text, in_json):
    assert bytes_text(value) == text
    assert bytes_json(value) == in_json


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (True, "yes"), (1234567, "1,234,567"), (0.5, "0.500"), ("a", "a")]
)
def test_a_cell_reads_well(value, text):
    assert cell_text(value) == text


def test_a_time_is_iso_in_utc_and_one_beyond_the_calendar_stays_a_number():
    assert time_text(1_356_998_400_123_456) == "2013-01-01T00:00:00.123Z"
    assert time_text(2**63 - 1) == "9223372036854775807 µs"


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0 ms"),
        (999_999, "999 ms"),
        (1_000_000, "1s"),
        (61_000_000, "1m 1s"),
        (3_600_000_000, "1h"),
        (90_061_000_000, "1d 1h"),
    ],
)
def test_an_age_is_told_in_its_two_largest_units(micros, text):
    assert age_text(micros) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_a_size_is_told_in_its_largest_unit(count, text):
    assert size_text(count) == text


def test_one_is_not_many():
    assert count_text(1, "message") == "1 message"
    assert count_text(2_000, "message") == "2,000 messages"
