"""Test the properties of contents: pamqp reads the same in them, and what is not replaced stays to the byte."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from tests.amqp.amqp_bytes import (
    ENTRIES,
    PROPERTIES,
    PROPERTY_VALUES,
    encoded,
    judged,
    packed,
    typed,
)
from txbroker.amqp import properties as props
from txbroker.amqp.fields import decode_table, encode_table, entries_of, long_text, short_text
from txbroker.amqp.framing import HEADER, content_frames
from txbroker.amqp.reply_codes import AmqpError, Reply

SOME = {
    props.CONTENT_TYPE: "text/plain",
    props.CONTENT_ENCODING: "gzip",
    props.HEADERS: {"a": 1, "b": "c"},
    props.DELIVERY_MODE: 2,
    props.PRIORITY: 9,
    props.CORRELATION_ID: "c-1",
    props.REPLY_TO: "answers",
    props.EXPIRATION: "60000",
    props.MESSAGE_ID: "m-1",
    props.TIMESTAMP: 1_357_034_400,
    props.TYPE: "order",
    props.USER_ID: "guest",
    props.APP_ID: "shop",
    props.CLUSTER_ID: "k",
}
"""A value of each property."""
ODD = b"".join(
    short_text(name) + octets
    for name, octets in {
        "short": b"s\xff\xfe", "unsigned": b"u\xff\xfe", "octet": b"B\xff", "byte": b"b\xff",
        "float": b"f\x3f\x80\0\0", "decimal": b"D\2\xff\xff\xff\xff", "time": b"T" + b"\xff" * 8,
        "long": b"i\xff\xff\xff\xff", "int": b"I\0\0\0\1",
        "longer": b"L" + bytes(8), "longest": b"l" + bytes(8), "double": b"d" + bytes(8), "no text": b"S\0\0\0\1\xff",
        "bytes": b"x\0\0\0\1a", "table": b"F" + encode_table({"kept": {"kept": 1}}), "void": b"V", "bit": b"t\2",
        "array": b"A\0\0\0\6s\0\1s\0\2", "": b"V",
    }.items()
)  # fmt: skip
"""Fields of every type, each as Python's values would not come out again."""


def judge(properties):
    """The properties as pamqp finds them in a content's header, by our bits."""
    header = ContentHeader()
    header.unmarshal(b"".join(content_frames(1, properties, b"abc", 4096))[7 : 7 + 12 + len(properties)])
    assert (header.class_id, header.weight, header.body_size) == (60, 0, 3)
    found = {}
    for bit, name in zip(props.NAMES, header.properties.attributes(), strict=True):
        value = getattr(header.properties, name)
        if value not in (None, ""):
            found[bit] = judged(value)
    return found


def named(values):
    return {props.NAMES[bit]: value for bit, value in values.items()}


@given(PROPERTIES)
def test_properties_are_to_pamqp_what_they_are_to_us(values):
    octets = packed(values)
    assert typed(judge(octets)) == typed(values)
    assert typed(props.decoded(octets)) == typed(named(values))


@given(PROPERTIES, st.sampled_from([1, 2]))
def test_properties_have_the_bytes_that_pamqp_gives_them(values, mode):
    """But for headers, whose numbers it makes as narrow as they can be, and what it does not let pass."""
    for bit in (props.HEADERS, props.CLUSTER_ID):
        values.pop(bit, None)
    if props.DELIVERY_MODE in values:
        values[props.DELIVERY_MODE] = mode
    slots = dict(zip(props.NAMES, Basic.Properties.attributes(), strict=True))
    told = {
        slots[bit]: datetime.fromtimestamp(value, UTC) if bit == props.TIMESTAMP else value
        for bit, value in values.items()
    }
    assert Basic.Properties(**told).marshal() == packed(values)


def test_every_subset_of_the_properties_is_found_and_can_be_taken_away():
    values = {bit: encoded(bit, value) for bit, value in SOME.items()}
    full = props.replaced(props.NONE, {}, values)
    everywhere = props.spans_of(full)
    for subset in range(1 << len(values)):
        kept = {bit: octets for bit, octets in values.items() if subset << 2 >> bit & 1}
        octets = props.replaced(full, everywhere, dict.fromkeys(values.keys() - kept.keys()))
        assert octets == (subset << 2).to_bytes(2) + b"".join(kept.values())
        assert {bit: octets[begin:end] for bit, (begin, end) in props.spans_of(octets).items()} == kept


@given(PROPERTIES, st.sampled_from(list(props.NAMES)), st.data())
def test_what_is_not_replaced_stays_to_the_byte(values, bit, data):
    octets = packed(values)
    spans = props.spans_of(octets)
    given_value = data.draw(st.none() | PROPERTY_VALUES[bit])
    value = None if given_value is None else encoded(bit, given_value)
    changed = props.replaced(octets, spans, {bit: value})
    wanted = {each: octets[slice(*span)] for each, span in spans.items()}
    wanted.pop(bit, None)
    wanted |= {} if value is None else {bit: value}
    assert {each: changed[slice(*span)] for each, span in props.spans_of(changed).items()} == wanted
    assert props.replaced(octets, spans, {}) == octets


def test_a_short_string_is_found_is_empty_if_it_is_not_there_and_must_be_utf_8():
    octets = packed({props.REPLY_TO: "é"})
    assert props.short_of(octets, props.spans_of(octets), props.REPLY_TO) == "é"
    assert props.short_of(octets, props.spans_of(octets), props.USER_ID) == ""
    octets = props.replaced(props.NONE, {}, {props.REPLY_TO: b"\2\xff\xfe"})
    with pytest.raises(AmqpError, match="property reply_to") as caught:
        props.short_of(octets, props.spans_of(octets), props.REPLY_TO)
    assert caught.value.reply is Reply.SYNTAX_ERROR


def test_properties_without_headers_have_none():
    assert props.headers_of(props.NONE, {}) == {}
    octets = packed({props.HEADERS: {}})
    assert props.headers_of(octets, props.spans_of(octets)) == {}


def test_properties_are_made_of_short_strings_encoded_values_and_headers():
    octets = props.made_of({props.DELIVERY_MODE: props.PERSISTENT, props.TYPE: "é"}, {"a": 1})
    assert props.decoded(octets) == {"delivery_mode": 2, "type": "é", "headers": {"a": 1}}
    assert props.made_of({}, {}) == props.NONE
    with pytest.raises(ValueError, match=r"."):
        props.made_of({props.TYPE: "a" * 256}, {})


def with_headers(entries):
    octets = props.replaced(packed({props.TYPE: "t"}), {}, {props.HEADERS: long_text(entries)})
    return octets, props.spans_of(octets)


def test_other_fields_of_every_type_stay_to_the_byte():
    octets, spans = with_headers(ODD)
    new = entries_of({"new": 1})
    assert props.headers_with(octets, spans, new, frozenset()) == long_text(ODD + new)
    assert props.headers_with(octets, spans, b"", frozenset({"none"})) == long_text(ODD)
    for name, value in decode_table(long_text(ODD))[0].items():
        less = decode_table(props.headers_with(octets, spans, new, frozenset({name})))[0]
        assert {**less, name: value} == {**decode_table(long_text(ODD))[0], "new": 1}
        assert less.keys() == {*decode_table(long_text(ODD))[0], "new"} - {name}


@given(ENTRIES, st.data())
def test_fields_that_are_taken_away_leave_the_others_to_the_byte(fields, data):
    pieces = {name: short_text(name) + each.octets for name, each in fields.items()}
    octets, spans = with_headers(b"".join(pieces.values()))
    gone = data.draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set()
    found = props.headers_with(octets, spans, b"\1zV", frozenset(gone))
    assert found == long_text(b"".join(each for name, each in pieces.items() if name not in gone) + b"\1zV")


def test_fields_of_the_same_name_all_stay_or_all_go():
    twice = b"\1ab\1" + b"\1bV" + b"\1ab\2"
    octets, spans = with_headers(twice)
    assert props.headers_with(octets, spans, b"", frozenset({"b"})) == long_text(b"\1ab\1\1ab\2")
    assert props.headers_with(octets, spans, b"", frozenset({"a"})) == long_text(b"\1bV")


def test_a_field_in_a_table_among_the_headers_is_none_of_them():
    inner = entries_of({"outer": {"x-death": 1}})
    octets, spans = with_headers(inner)
    assert props.headers_with(octets, spans, b"", frozenset({"x-death"})) == long_text(inner)


def test_a_name_that_is_no_utf_8_is_no_obstacle():
    octets, spans = with_headers(b"\1\xffV\1aV")
    assert props.headers_with(octets, spans, b"", frozenset({"a"})) == long_text(b"\1\xffV")


def test_headers_are_added_where_there_were_none():
    octets = packed({props.TYPE: "t"})
    fields = entries_of({"a": 1})
    headers = props.headers_with(octets, props.spans_of(octets), fields, frozenset({"b"}))
    changed = props.replaced(octets, props.spans_of(octets), {props.HEADERS: headers})
    assert props.decoded(changed) == {"headers": {"a": 1}, "type": "t"}


@pytest.mark.parametrize(
    "entries",
    [
        b"\1",
        b"\1a",
        b"\1a?",
        b"\1aS\0\0\0\1",
        b"\1aS\0\0",
        b"\1al",
        b"\1at",
        b"\1aF\xff\xff\xff\xff",
        b"\xff",
        b"\1a\0",
    ],
)
def test_fields_that_cannot_be_told_apart_are_a_syntax_error(entries):
    octets, spans = with_headers(entries)
    for call in (
        lambda: props.headers_with(octets, spans, b"", frozenset()),
        lambda: props.headers_of(octets, spans),
        lambda: props.decoded(octets),
    ):
        with pytest.raises(AmqpError) as caught:
            call()
        assert caught.value.reply is Reply.SYNTAX_ERROR


LIES = {
    "nothing": b"",
    "half of the flags": b"\0",
    "flags that go on": b"\0\1\0\0",
    "flags that go on nowhere": b"\0\1",
    "a flag that means nothing": b"\0\2",
    "a short string that is not there": b"\x80\0",
    "a short string that is cut": b"\x80\0\2a",
    "a timestamp that is cut": b"\0\x40" + bytes(7),
    "a mode that is not there": b"\x10\0",
    "headers of 4 GiB": b"\x20\0\xff\xff\xff\xff",
    "headers without their length": b"\x20\0\0\0",
    "headers one longer than there is room": b"\x20\0\0\0\0\4\1aV",
    "bytes behind them": b"\0\0\0",
    "bytes behind one": b"\x80\0\1ab",
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_a_syntax_error(name):
    with pytest.raises(AmqpError) as caught:
        props.spans_of(LIES[name])
    assert caught.value.reply is Reply.SYNTAX_ERROR


def outcome_of(octets):
    """Whatever the bytes are: properties that can be changed and read, or one kind of error."""
    try:
        spans = props.spans_of(octets)
        assert props.replaced(octets, spans, {}) == octets
        for bit in props.NAMES:
            props.replaced(octets, spans, {bit: None})
        props.headers_with(octets, spans, b"", frozenset({"a"}))
        props.decoded(octets)
    except AmqpError as error:
        if error.reply is not Reply.SYNTAX_ERROR:
            raise


@given(st.binary(max_size=60))
def test_garbage_is_a_syntax_error_or_properties(octets):
    outcome_of(octets)
    outcome_of(b"\x20\0" + long_text(octets))


@given(PROPERTIES, st.data())
def test_changed_bytes_make_a_syntax_error_or_other_properties(values, data):
    octets = bytearray(packed(values))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    outcome_of(bytes(octets))


@given(PROPERTIES, st.data())
def test_properties_that_are_cut_are_a_syntax_error(values, data):
    octets = packed(values)
    with pytest.raises(AmqpError):
        props.spans_of(octets[: data.draw(st.integers(0, len(octets) - 1))])


def test_a_content_header_is_a_frame_of_its_type_with_the_properties_at_its_end():
    octets = packed(SOME)
    header, *_ = content_frames(3, octets, b"", 4096)
    assert bytes(header) == bytes((HEADER, 0, 3)) + (12 + len(octets)).to_bytes(4)
    assert judge(octets) == SOME
