"""Test field tables: pamqp reads the same in the same bytes, and hostile ones cost an error and little time."""

import decimal
import struct
import time
from decimal import Decimal

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.amqp.amqp_bytes import ARGUMENTS, TABLES, judged, typed
from tests.support.processor_time import least_time
from txbroker.amqp.fields import (
    MAX_DEPTH,
    decode_table,
    decode_value,
    encode_table,
    encode_value,
    long_text,
    short_text,
    text_of,
    timestamp,
)
from txbroker.amqp.reply_codes import AmqpError, Reply


def table(*entries):
    return long_text(b"".join(entries))


def one(octets):
    """The value of a table's only field, whose type and value these are."""
    found, end = decode_table(table(b"\1a", octets))
    assert end == 6 + len(octets)
    return found["a"]


@given(TABLES)
def test_a_table_of_every_type_is_what_it_was_made_of_and_what_pamqp_reads(given_table):
    octets, value = given_table
    found, end = decode_table(octets)
    assert (typed(found), end) == (typed(value), len(octets))
    assert typed(judged(pamqp.decode.field_table(octets)[1])) == typed(found)


@given(TABLES, st.binary(max_size=5), st.binary(max_size=5))
def test_a_table_is_found_among_other_bytes_in_bytes_and_in_a_view(given_table, before, behind):
    octets, value = given_table
    for data in (before + octets + behind, memoryview(before + octets + behind)):
        found, end = decode_table(data, len(before))
        assert (typed(found), end) == (typed(value), len(before) + len(octets))


@given(ARGUMENTS)
def test_what_is_encoded_is_what_pamqp_decodes_and_we_do(arguments):
    octets = encode_table(arguments)
    assert typed(judged(pamqp.decode.field_table(octets)[1])) == typed(arguments)
    assert typed(decode_table(octets)[0]) == typed(arguments)


@given(TABLES)
def test_whatever_was_decoded_can_be_encoded_and_is_the_same_again(given_table):
    found, _ = decode_table(given_table.octets)
    assert typed(decode_table(encode_table(found))[0]) == typed(found)


NARROW = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(width=32, allow_nan=False),
        st.text(max_size=9), st.binary(max_size=9).map(bytearray),
        st.decimals(-9, 9, allow_nan=False, places=3),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=9), NARROW, max_size=4))
def test_what_pamqp_encodes_in_its_narrow_types_is_decoded_to_the_same(given_table):
    octets = pamqp.encode.field_table(given_table)
    assert typed(decode_table(octets)[0]) == typed(judged(given_table))


@pytest.mark.parametrize("value", [None, True, -5, 0.5, "é", b"\xff", Decimal("1.50"), [1, []], {"a": {}}])
def test_a_value_by_itself_comes_back_and_nothing_may_be_behind_it(value):
    octets = encode_value(value)
    assert repr(decode_value(octets)) == repr(value)
    for wrong in (octets + b"V", b"", b"?"):
        with pytest.raises(AmqpError) as caught:
            decode_value(wrong)
        assert caught.value.reply is Reply.SYNTAX_ERROR


def test_an_empty_table_and_empty_things_in_a_table_stay_empty():
    assert decode_table(bytes(4)) == ({}, 4)
    empty = {"": "", "a": {}, "b": [], "c": b"", "d": [[], {}]}
    assert decode_table(encode_table(empty))[0] == empty


def test_of_fields_of_the_same_name_the_last_is_taken():
    octets = table(b"\1a", b"b\1", b"\1b", b"b\2", b"\1a", b"b\3")
    assert decode_table(octets)[0] == {"a": 3, "b": 2}


def test_text_that_is_no_utf_8_is_bytes_and_a_name_that_is_none_an_error():
    assert one(b"S\0\0\0\2\xff\xfe") == b"\xff\xfe" == text_of(b"\xff\xfe")
    assert one(b"S\0\0\0\2\xc3\xa9") == "é"
    with pytest.raises(AmqpError, match="utf-8"):
        decode_table(table(b"\2\xff\xfe", b"V"))


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (0, b"I\0\0\0\0"), (-1, b"I\xff\xff\xff\xff"), ((1 << 31) - 1, b"I\x7f\xff\xff\xff"),
        (-(1 << 31), b"I\x80\0\0\0"), (1 << 31, b"l\0\0\0\0\x80\0\0\0"),
        (-(1 << 31) - 1, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
        ((1 << 63) - 1, b"l\x7f" + b"\xff" * 7), (-(1 << 63), b"l\x80" + bytes(7)),
        (True, b"t\1"), (False, b"t\0"), (0.5, b"d\x3f\xe0" + bytes(6)),
        (Decimal("-1.5"), b"D\1\xff\xff\xff\xf1"), (Decimal("0"), b"D" + bytes(5)),
        (Decimal("12E2"), b"D\0\0\0\x04\xb0"), (Decimal("2147483647"), b"D\0\x7f\xff\xff\xff"),
        (Decimal("-2147483648"), b"D\0\x80\0\0\0"), (Decimal("1E-255"), b"D\xff\0\0\0\1"),
        (Decimal("2E+9"), b"D\0\x77\x35\x94\0"),
    ],
)  # fmt: skip
def test_a_number_gets_these_bytes_and_comes_back(value, octets):
    assert encode_table({"a": value}) == table(b"\1a", octets)
    assert one(octets) == value


@pytest.mark.parametrize("kind", [b"l", b"L"])
def test_a_long_long_is_signed_in_either_case_as_pika_and_pamqp_have_it(kind):
    assert one(kind + b"\xff" * 8) == -1


@pytest.mark.parametrize(
    "value",
    [
        1 << 63, -(1 << 63) - 1, 1 << 64, 1 << 1000,
        Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("-Infinity"),
        Decimal(1 << 31), Decimal(-(1 << 31) - 1), Decimal("3E+9"), Decimal("1E-256"), Decimal("1E+10"),
        Decimal("1E+999999"), Decimal("1E-999999"), Decimal("0E+999999"), Decimal("1." + "1" * 5_000),
        "\ud800",
    ],
)  # fmt: skip
def test_a_value_that_no_type_has_room_for_is_a_value_error_at_once(value):
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"."):
        encode_table({"a": [value]})
    assert time.process_time() - begin < 1


def test_a_name_of_255_bytes_is_taken_and_one_of_256_is_a_value_error():
    assert decode_table(encode_table({"ä" * 127 + "a": 1}))[0] == {"ä" * 127 + "a": 1}
    for refused in ("ä" * 128, "\ud800"):
        with pytest.raises(ValueError, match=r"."):
            encode_table({refused: 1})
    with pytest.raises(ValueError, match=r"."):
        short_text("a" * 256)


@pytest.mark.parametrize(
    "octets", [b"\x7f\xf8" + bytes(6), b"\x7f\xf0" + bytes(6), b"\xff\xf0" + bytes(6), b"\x80" + bytes(7)]
)
def test_floats_that_are_no_numbers_come_back_bit_by_bit(octets):
    assert encode_table({"a": one(b"d" + octets)}) == table(b"\1a", b"d" + octets)
    assert isinstance(one(b"f\x7f\xc0\0\0"), float)


@pytest.mark.parametrize(
    "octets", [b"D\xff\x7f\xff\xff\xff", b"D\xff\x80\0\0\0", b"D\0\xff\xff\xff\xff", b"D\xff\0\0\0\0"]
)
def test_a_decimal_of_any_scale_is_exact_short_and_goes_out_as_it_came(octets):
    with decimal.localcontext(prec=2) as context:
        context.traps[decimal.Inexact] = context.traps[decimal.Subnormal] = True
        value = one(octets)
    assert len(str(value)) < 20
    assert encode_table({"a": value}) == table(b"\1a", octets)


def test_a_time_is_a_number_of_seconds_of_64_bits():
    assert timestamp(0) == b"T" + bytes(8)
    assert one(timestamp((1 << 64) - 1)) == (1 << 64) - 1
    for refused in (-1, 1 << 64):
        with pytest.raises(ValueError, match="type 'T'"):
            timestamp(refused)


def nested(depth, kinds):
    octets = b"V"
    for n in range(depth):
        octets = b"A" + long_text(octets) if kinds[n % len(kinds)] == "A" else b"F" + table(b"\0", octets)
    return table(b"\0", octets)


@pytest.mark.parametrize("kinds", ["A", "F", "AF"])
def test_tables_and_arrays_lie_in_each_other_to_a_depth_and_no_deeper(kinds):
    decode_table(nested(MAX_DEPTH, kinds))
    for depth in (MAX_DEPTH + 1, 10_000):
        with pytest.raises(AmqpError, match="more than 32 deep"):
            decode_table(nested(depth, kinds))


LIES = {
    "no length": b"\0\0\0",
    "longer than it is": b"\0\0\0\4\1ab",
    "4 GiB": b"\xff\xff\xff\xff\1ab\1",
    "only a name": table(b"\1a"),
    "only the length of a name": table(b"\5"),
    "a name beyond its end": table(b"\5a") + b"aaaaV",
    "a name to beyond its end": table(b"\1") + b"aV",
    "a type beyond its end": table(b"\1a") + b"V",
    "a type that is none": table(b"\1a", b"?"),
    "the type of a short in the specification": table(b"\1a", b"U\0\1"),
    "a type of a zero": table(b"\1a", b"\0"),
    "text of 4 GiB": table(b"\1a", b"S\xff\xff\xff\xff"),
    "text beyond its end": table(b"\1a", b"S\0\0\0\2a") + b"a",
    "the length of a text beyond its end": table(b"\1a", b"S\0\0") + b"\0\0",
    "bytes beyond its end": table(b"\1a", b"x\0\0\0\2a") + b"a",
    "a number beyond its end": table(b"\1a", b"l\0\0\0\0") + bytes(4),
    "a number that is cut": table(b"\1a", b"l\0\0\0\0"),
    "a bit beyond its end": table(b"\1a", b"t") + b"\1",
    "a bit that is cut": table(b"\1a", b"t"),
    "a decimal beyond its end": table(b"\1a", b"D\0\0") + bytes(3),
    "a table beyond its end": table(b"\1a", b"F\0\0\0\3\1a") + b"V",
    "an array beyond its end": table(b"\1a", b"A\0\0\0\2V") + b"V",
    "an array that ends within a value": table(b"\1a", b"A\0\0\0\2b\1", b"A\0\0\0\1b", b"\1"),
    "an array of 4 GiB": table(b"\1a", b"A\xff\xff\xff\xff"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_a_syntax_error(name):
    for data in (LIES[name], memoryview(LIES[name])):
        with pytest.raises(AmqpError) as caught:
            decode_table(data)
        assert caught.value.reply is Reply.SYNTAX_ERROR


def test_a_length_beyond_the_end_is_told_with_what_is_there():
    """Before anything is looked at that may be in it."""
    with pytest.raises(AmqpError, match="a field of 4294967295 bytes, 3 are there"):
        decode_table(LIES["4 GiB"][:7])
    with pytest.raises(AmqpError, match="a field of 9 bytes, 0 are there"):
        decode_table(table(b"\1a", b"A\0") + b"\0\0\x09" + b"V" * 20)


def outcome_of(octets):
    """Whatever the bytes are: a table within them, or one kind of error."""
    try:
        found, end = decode_table(octets)
    except AmqpError as error:
        if error.reply is not Reply.SYNTAX_ERROR:
            raise
        return
    assert 4 <= end <= len(octets)
    assert end == 4 + int.from_bytes(octets[:4])
    assert isinstance(found, dict)


@given(st.binary(max_size=60))
@example(bytes(60))
@example(b"\xff" * 60)
def test_garbage_is_a_syntax_error_or_a_table(octets):
    outcome_of(octets)
    outcome_of(table(octets))
    outcome_of(table(b"\1a", octets))


@given(TABLES, st.data())
def test_changed_bytes_in_a_table_make_a_syntax_error_or_another_table(given_table, data):
    octets = bytearray(given_table.octets)
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    outcome_of(bytes(octets))


@given(TABLES, st.data())
def test_a_table_that_is_cut_is_a_syntax_error(given_table, data):
    cut = data.draw(st.integers(0, len(given_table.octets) - 1))
    with pytest.raises(AmqpError):
        decode_table(given_table.octets[:cut])


ENTRIES = {
    "of the same name": lambda n: b"\0V",
    "of different names": lambda n: b"\3" + n.to_bytes(3) + b"V",
    "of empty tables": lambda n: b"\0F\0\0\0\0",
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_table_of_twice_the_entries_takes_twice_the_time(kind):
    half, whole = (
        table(*(ENTRIES[kind](n % (1 << 7)) for n in range(count))) for count in (1 << 15, 1 << 16)
    )
    assert least_time(lambda: decode_table(whole)) < 2.5 * least_time(lambda: decode_table(half)) + 0.01


def test_claiming_much_reserves_nothing():
    octets = struct.pack(">I", 0xFFFFFFFF) + b"\1aS\xff\xff\xff\xff"
    assert least_time(lambda: [outcome_of(octets) for _ in range(100)]) < 1
