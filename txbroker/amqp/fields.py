"""Field tables and arrays, and the values in them, with the types that RabbitMQ sends and takes.

Source: the specification, section 4.2.5.5, and RabbitMQ's errata (https://www.rabbitmq.com/amqp-0-9-1-errata), where
they differ: ``s`` is a signed short, ``l`` a signed long long, ``x`` a byte array. Where neither says it, as pika and
pamqp have it: ``L`` is signed, too, and so is the number of a decimal.

pamqp, by which the tests judge this, copies the rest of a table for each of its entries: 64 KiB of empty entries hold
the reactor for a second. And it forgets the widths of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from struct import Struct
from struct import error as StructError
from typing import Final

from txbroker.amqp.reply_codes import AmqpError, Reply

MAX_DEPTH: Final = 32
"""How deep tables and arrays may lie in each other."""

Value = bool | int | float | bytes | str | None | Decimal | list["Value"] | dict[str, "Value"]
"""A value of a field: text is str, ``x`` and text that is no UTF-8 are bytes."""
Table = dict[str, Value]

_U32: Final = Struct(">I")
_FIXED: Final = {
    ord("b"): Struct(">b"),
    ord("B"): Struct(">B"),
    ord("s"): Struct(">h"),
    ord("u"): Struct(">H"),
    ord("I"): Struct(">i"),
    ord("i"): Struct(">I"),
    ord("l"): Struct(">q"),
    ord("L"): Struct(">q"),
    ord("T"): Struct(">Q"),
    ord("f"): Struct(">f"),
    ord("d"): Struct(">d"),
}
_BOOLEAN, _TEXT, _BYTES, _TABLE, _ARRAY, _VOID, _DECIMAL = (ord(each) for each in "tSxFAVD")
_LEAST_INT, _MOST_INT = -(1 << 31), (1 << 31) - 1
_SCALED: Final = Struct(">Bi")
_EXACT: Final = Context()
"""A thread may have another, which rounds or raises."""
_MOST_DIGITS: Final = 10


def decode_table(data: bytes | memoryview, position: int = 0) -> tuple[Table, int]:
    """Return the table that begins there with its length, and where it ends; raises AmqpError, SYNTAX_ERROR."""
    try:
        return _table(data, position, len(data), 0)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise malformed(f"a field table: {error}") from error


def malformed(what: str) -> AmqpError:
    """Return the error for bytes that are not what they must be."""
    return AmqpError(Reply.SYNTAX_ERROR, what)


def _bounds(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Return where what begins there with its length begins and ends."""
    begin = position + 4
    behind = begin + int(_U32.unpack_from(data, position)[0])
    if behind > end:
        raise malformed(f"a field of {behind - begin} bytes, {max(0, end - begin)} are there")
    return begin, behind


def _table(data: bytes | memoryview, position: int, end: int, depth: int) -> tuple[Table, int]:
    if depth > MAX_DEPTH:
        raise malformed(f"tables and arrays in each other, more than {MAX_DEPTH} deep")
    position, behind = _bounds(data, position, end)
    found: Table = {}
    while position < behind:
        begin = position + 1
        position = begin + data[position]
        name = str(data[begin:position], "utf-8")
        found[name], position = _value(data, position, behind, depth)
    return found, behind


def _value(data: bytes | memoryview, position: int, end: int, depth: int) -> tuple[Value, int]:
    """Return the value whose type stands there, and where it ends."""
    kind, position = data[position], position + 1
    value: Value
    if kind in (_TEXT, _BYTES):
        begin, position = _bounds(data, position, end)
        octets = bytes(data[begin:position])
        value = octets if kind == _BYTES else text_of(octets)
    elif (fixed := _FIXED.get(kind)) is not None:
        (value,) = fixed.unpack_from(data, position)
        position += fixed.size
    elif kind == _BOOLEAN:
        value, position = bool(data[position]), position + 1
    elif kind == _TABLE:
        value, position = _table(data, position, end, depth + 1)
    elif kind == _ARRAY:
        value, position = _array(data, position, end, depth + 1)
    elif kind == _VOID:
        value = None
    elif kind == _DECIMAL:
        scale, number = _SCALED.unpack_from(data, position)
        value, position = Decimal(number).scaleb(-scale, _EXACT), position + _SCALED.size
    else:
        raise malformed(f"a field of type {chr(kind)!r}, which is none")
    if position > end:
        raise malformed("a field table ends within a field")
    return value, position


def _array(data: bytes | memoryview, position: int, end: int, depth: int) -> tuple[list[Value], int]:
    if depth > MAX_DEPTH:
        raise malformed(f"tables and arrays in each other, more than {MAX_DEPTH} deep")
    position, behind = _bounds(data, position, end)
    found: list[Value] = []
    while position < behind:
        value, position = _value(data, position, behind, depth)
        found.append(value)
    return found, behind


def text_of(octets: bytes) -> str | bytes:
    """Return the text that these bytes are in UTF-8, themselves if they are none."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def encode_table(table: Mapping[str, Value]) -> bytes:
    """Return a table with its length.

    Raises :class:`ValueError` for a name of more than 255 bytes, an int that needs more than 64 bits with its sign, and
    a decimal that is no number, has more than 255 places, or digits that need more than 32 bits with its sign.
    """
    content = entries_of(table)
    return _U32.pack(len(content)) + content


def entries_of(table: Mapping[str, Value]) -> bytes:
    """Return the fields of a table; raises as :func:`encode_table`."""
    return b"".join([short_text(name) + _encoded(value) for name, value in table.items()])


def encode_value(value: Value) -> bytes:
    """Return a value behind its type; raises as :func:`encode_table`."""
    return _encoded(value)


def decode_value(data: bytes) -> Value:
    """Return the value that these bytes are, with its type in front; raises AmqpError, SYNTAX_ERROR."""
    try:
        value, end = _value(data, 0, len(data), 0)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise malformed(f"a field: {error}") from error
    if end != len(data):
        raise malformed(f"{len(data) - end} bytes behind a field")
    return value


def short_text(text: str) -> bytes:
    """Return a short string; raises :class:`ValueError` for one of more than 255 bytes."""
    octets = text.encode()
    return bytes((len(octets),)) + octets


def long_text(octets: bytes) -> bytes:
    """Return a long string."""
    return _U32.pack(len(octets)) + octets


def _encoded(value: Value) -> bytes:
    """Return a value behind its type. An int gets the narrowest of the two types that every client knows."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\1" if value else b"t\0"
        case int():
            return _packed(b"I" if _LEAST_INT <= value <= _MOST_INT else b"l", value)
        case float():
            return _packed(b"d", value)
        case str():
            return b"S" + long_text(value.encode())
        case bytes():
            return b"x" + long_text(value)
        case Decimal():
            return _decimal(value)
        case list():
            return b"A" + long_text(b"".join([_encoded(each) for each in value]))
        case _:
            return b"F" + encode_table(value)


def _packed(kind: bytes, value: float) -> bytes:
    """Return a number behind its type."""
    try:
        return kind + _FIXED[kind[0]].pack(value)
    except StructError as error:
        raise ValueError(f"{value} does not fit into a field of type {kind.decode()!r}") from error


def _decimal(value: Decimal) -> bytes:
    """Return a decimal behind its type; its exponent becomes places or digits."""
    if not value.is_finite() or value.adjusted() > _MOST_DIGITS:  # 10 ** its exponent may take gigabytes
        raise ValueError(f"{value} does not fit into a field of type 'D'")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    number = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    try:
        return b"D" + _SCALED.pack(max(0, -exponent), -number if sign else number)
    except StructError as error:
        raise ValueError(f"{value} does not fit into a field of type 'D'") from error


def timestamp(seconds: int) -> bytes:
    """Return a value that is a time, in seconds since 1970, behind its type: there is no type of Python for it here.

    Raises :class:`ValueError` for a time before that, or one that needs more than 64 bits.
    """
    return _packed(b"T", seconds)
