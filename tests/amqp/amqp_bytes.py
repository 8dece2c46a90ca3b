"""What the tests of AMQP's bytes draw: fields of every type with their bytes, methods and contents."""

import struct
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from hypothesis import strategies as st

from txbroker.amqp import properties as props
from txbroker.amqp.fields import entries_of, long_text, short_text
from txbroker.amqp.framing import PROTOCOL_HEADER, AmqpDecoder, content_frames, method_frame
from txbroker.amqp.method_codec import BY_INDEX
from txbroker.amqp.methods import BasicPublish

FRAME_MAX, MAX_BODY = 4096, 1 << 20
SECONDS = st.integers(0, (1 << 32) - 1)
"""pamqp takes a later time for milliseconds."""
NAMES = st.text("azAZ09-_.:", max_size=40)
"""What pamqp also encodes where it wants names of queues or exchanges."""
TEXTS = st.text(max_size=12)


class Field(NamedTuple):
    """A value with the bytes that it came in, its type first."""

    octets: bytes
    value: object


def _number(kind, layout, values):
    return values.map(lambda value: Field(kind + struct.pack(layout, value), value))


def _signed(bits):
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _unsigned(bits):
    return st.integers(0, (1 << bits) - 1)


LEAVES = st.one_of(
    st.booleans().map(lambda value: Field(b"t" + bytes((value,)), value)),
    _number(b"b", ">b", _signed(8)),
    _number(b"B", ">B", _unsigned(8)),
    _number(b"s", ">h", _signed(16)),
    _number(b"u", ">H", _unsigned(16)),
    _number(b"I", ">i", _signed(32)),
    _number(b"i", ">I", _unsigned(32)),
    _number(b"l", ">q", _signed(64)),
    _number(b"L", ">q", _signed(64)),
    _number(b"f", ">f", st.floats(allow_nan=False, width=32)),
    _number(b"d", ">d", st.floats(allow_nan=False)),
    _number(b"T", ">Q", SECONDS),
    TEXTS.map(lambda value: Field(b"S" + long_text(value.encode()), value)),
    st.binary(max_size=9).map(lambda value: Field(b"x" + long_text(value), value)),
    st.just(Field(b"V", None)),
    st.builds(
        lambda scale, number: Field(
            b"D" + struct.pack(">Bi", scale, number),
            Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)),
        ),
        _unsigned(8),
        _signed(32),
    ),
)


def _array(fields):
    return Field(b"A" + long_text(b"".join(each.octets for each in fields)), [each.value for each in fields])


def _entries(fields):
    return b"".join(short_text(name) + each.octets for name, each in fields.items())


def _table(fields):
    return Field(b"F" + long_text(_entries(fields)), {name: each.value for name, each in fields.items()})


FIELDS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4).map(_array) | st.dictionaries(TEXTS, inner, max_size=4).map(_table)
    ),
    max_leaves=12,
)
ENTRIES = st.dictionaries(TEXTS, FIELDS, max_size=6)
"""The fields of a table by their names."""
TABLES = ENTRIES.map(_table).map(lambda field: Field(field.octets[1:], field.value))
"""Tables with their bytes: length first, no type."""

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        _signed(64),
        st.floats(allow_nan=False),
        TEXTS,
        st.binary(max_size=9),
        st.decimals(-(1 << 31), (1 << 31) - 1, allow_nan=False, places=0),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def typed(value):
    """The value in a form that tells 1, True, 1.0 and Decimal(1) apart."""
    match value:
        case dict():
            return {name: typed(each) for name, each in value.items()}
        case list():
            return [typed(each) for each in value]
        case _:
            return type(value).__name__, str(value) if isinstance(value, Decimal) else value


def judged(value):
    """A value as pamqp decodes it, as ours is."""
    match value:
        case datetime():
            return int(value.timestamp())
        case bytearray():
            return bytes(value)
        case dict():
            return {name: judged(each) for name, each in value.items()}
        case list():
            return [judged(each) for each in value]
        case _:
            return value


_KINDS = {
    "Octet": _unsigned(8),
    "Short": _unsigned(16),
    "Long": _unsigned(32),
    "LongLong": _unsigned(63),  # pamqp has them signed
    "ShortText": st.text(max_size=63),
    "LongText": st.binary(max_size=40),
    "Bit": st.booleans(),
    "Fields": ARGUMENTS,
}
RESERVED = {
    "ticket": 0,
    "capabilities": "",
    "insist": False,
    "out_of_band": "0",
    "channel_id": b"0",
    "known_hosts": "",
    "cluster_id": "",
}
"""Arguments that mean nothing, as pamqp insists on them."""


def methods_of(kind, **others):
    """Methods of a kind with any arguments, or those of ``others`` by name or by the kind of the argument."""
    names = kind.__struct_fields__
    kinds = [each for each in kind.__annotations__.items() if each[0] in names]
    drawn = [others.get(name, others.get(str(each), _KINDS[str(each)])) for name, each in kinds]
    return st.tuples(*drawn).map(lambda arguments: kind(*arguments))


ANY_METHOD = st.one_of([methods_of(kind) for kind in BY_INDEX.values() if kind is not BasicPublish])


def encoded(bit, value):
    """A property's value, encoded."""
    if bit == props.HEADERS:
        return long_text(entries_of(value))
    if bit == props.TIMESTAMP:
        return struct.pack(">Q", value)
    return bytes((value,)) if bit in (props.DELIVERY_MODE, props.PRIORITY) else short_text(value)


PROPERTY_VALUES = {
    bit: ARGUMENTS
    if bit == props.HEADERS
    else SECONDS
    if bit == props.TIMESTAMP
    else _unsigned(8)
    if bit in (props.DELIVERY_MODE, props.PRIORITY)
    else st.text(min_size=1, max_size=20)  # pamqp leaves out an empty one
    for bit in props.NAMES
}
PROPERTIES = st.fixed_dictionaries({}, optional=PROPERTY_VALUES)


def packed(values):
    """Properties of these values by their bits."""
    return props.replaced(props.NONE, {}, {bit: encoded(bit, value) for bit, value in values.items()})


PUBLISHED = st.tuples(
    methods_of(BasicPublish, ticket=st.just(0)), PROPERTIES.map(packed), st.binary(max_size=3 * FRAME_MAX)
)


def frames_of(channel, sent, frame_max=FRAME_MAX):
    """The frames of a method, or of what was published, each as bytes."""
    if not isinstance(sent, tuple):
        return [method_frame(channel, sent)]
    method, properties, body = sent
    pieces = content_frames(channel, properties, body, frame_max)
    return [
        method_frame(channel, method),
        *(b"".join(pieces[begin : begin + 3]) for begin in range(0, len(pieces), 3)),
    ]


def greeted(max_body=MAX_BODY, frame_max=FRAME_MAX):
    """A decoder that has had the protocol's header."""
    decoder = AmqpDecoder(max_body)
    decoder.frame_max = frame_max
    assert [each.method for each, _ in decoder.feed(PROTOCOL_HEADER)] == [None]
    return decoder


def shown(found):
    """What a decoder found, to be compared: channel, method, properties, body."""
    return [(*arrived, bytes(body)) for arrived, body in found]
