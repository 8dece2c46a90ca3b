"""Test the forms of arguments."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.transaction_states import TransactionNumber
from journal.xid import Xid
from txbroker.cli.arguments import XidPrefix, header, moment, pause, setting, transaction, xid_prefix

xids = st.builds(
    Xid,
    st.integers(0, 2**31 - 1),
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=64),
)
plain_xids = st.builds(
    lambda f, g, b: Xid(f, g.encode(), b.encode()),
    st.integers(0, 2**31 - 1),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=64),
)


def test_a_pause_is_a_duration_and_not_none():
    assert pause("2s") == 2_000_000
    for nothing in ("0", "0s", "0h0m"):
        with pytest.raises(ValueError, match="no time to wait"):
            pause(nothing)


def test_a_time_without_a_zone_is_utc_as_all_times_printed_are():
    expected = int(datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()) * 1_000_000
    assert moment("2026-01-01T10:00", 0) == expected
    assert moment("2026-01-01T10:00:00Z", 0) == expected
    assert moment("2026-01-01T12:00+02:00", 0) == expected


def test_a_time_keeps_its_microseconds():
    assert moment("2001-09-09T01:46:40.000001", 0) == 1_000_000_000_000_001


def test_a_time_may_count_back_from_now():
    now = 1_700_000_000_000_000
    assert moment("-10m", now) == now - 600_000_000
    assert moment("now", now) == now


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59", "1973-03-03T09:46:39.999999", "-36000d", "0001-01-01"]
)
def test_a_time_before_every_message_is_refused(text):
    with pytest.raises(ValueError, match="is before 1973-03-03, and no message is so old"):
        moment(text, 1_700_000_000_000_000)
    assert moment("1973-03-03T09:46:40", 0) == 10**14


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-13-01", "10m", "-", "-10", "1700000000", "1700000000000"]
)
def test_a_time_that_no_calendar_has_is_refused(text):
    with pytest.raises(ValueError, match=r"time|duration|no unit"):
        moment(text, 0)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("retention_age=7d", ("retention_age", timedelta(days=7))),
        ("force_interval=10s", ("force_interval", timedelta(seconds=10))),
        ("segment_bytes=64MiB", ("segment_bytes", 64 << 20)),
        ("force_messages=500", ("force_messages", 500)),
        ("retention_bytes=none", ("retention_bytes", None)),
    ],
)
def test_a_setting_is_read_in_the_unit_of_its_name(text, parsed):
    assert setting(text) == parsed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("retention_age", "NAME=VALUE"),
        ("retention=7d", "known are force_messages"),
        ("retention_age=7", "setting retention_age: '7' has no unit: write '7s'"),
        ("segment_bytes=1KiB", "segment_bytes is 1KiB, it must be a size from 64KiB"),
        ("force_messages=many", "whole number"),
        ("segment_bytes=none", "not a size"),
        ("segment_bytes=7d", "not a size"),
        ("force_messages=1KiB", "whole number"),
    ],
)
def test_a_setting_that_is_unknown_or_out_of_range_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        setting(text)


def test_a_header_keeps_everything_after_the_first_equals_sign():
    assert header("kind=a=b") == ("kind", b"a=b")
    assert header("kind=") == ("kind", b"")
    assert header("ort=Köln") == ("ort", "Köln".encode())
    assert header("raw=\udcff") == ("raw", b"\xff"), "as the shell gave it"


@pytest.mark.parametrize("text", ["kind", "=x", ""])
def test_a_header_without_a_name_is_refused(text):
    with pytest.raises(ValueError, match="NAME=VALUE"):
        header(text)


@given(xids | plain_xids)
def test_an_xid_is_read_back_from_what_is_printed(xid):
    assert transaction(str(xid)) == xid


@given(st.integers(1, 2**63), st.integers(1, 2**63))
def test_a_number_is_read_back_from_what_is_printed(session, serial):
    number = TransactionNumber(session, serial)
    assert transaction(str(number)) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "a-b",
        "1:2",
        "1:a:b:c",
        "x:a:b",
        "1::b",
        "1:ä:b",
        "1:0xzz:b",
        "\u0661-1",
        f"1:{'a' * 65}:b",
        "2147483648:a:b",
    ],
)
def test_what_is_neither_a_number_nor_an_xid_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        transaction(text)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("7:order-", XidPrefix(7, b"order-")),
        ("7:", XidPrefix(7, b"")),
        ("*:0x00ff", XidPrefix(None, b"\x00\xff")),
        ("*:", XidPrefix(None, b"")),
    ],
)
def test_an_xid_prefix_is_a_format_or_any_and_how_the_global_id_begins(text, parsed):
    assert xid_prefix(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "7", "order-", ":order", "x:order", "7:a:b", "7:ä", "7:0xz", "\u0661:a"]
)
def test_an_xid_prefix_without_a_format_or_with_too_much_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        xid_prefix(text)
