"""The payloads of frames with methods: a method's arguments one after the other, bits packed into octets."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from msgspec.structs import astuple

from txbroker.amqp import methods
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.fields import decode_table, encode_table, long_text, malformed, short_text
from txbroker.amqp.reply_codes import AmqpError, Reply

_INDEX: Final = Struct(">HH")
_NUMBERS: Final = {
    "Octet": Struct(">B"),
    "Short": Struct(">H"),
    "Long": Struct(">I"),
    "LongLong": Struct(">Q"),
}
_U32: Final = _NUMBERS["Long"]
_SETTLING: Final = Struct(">IQB")
_ACK, _NACK, _REJECT = (
    each.index[0] << 16 | each.index[1] for each in (methods.BasicAck, methods.BasicNack, methods.BasicReject)
)
_LAYOUTS: Final = {
    each: tuple(map(str, each.__annotations__.values()))[1:] for each in Method.__subclasses__()
}
"""The kinds of the arguments of each method, as its annotations name them."""
BY_INDEX: Final = {method.index: method for method in Method.__subclasses__()}
"""Every method by its class and number."""


def decode_method(payload: bytes | memoryview) -> Method:
    """Return the method that the payload of a frame is; raises AmqpError: SYNTAX_ERROR, COMMAND_INVALID."""
    try:
        if len(payload) == _SETTLING.size:  # by hand, 0.2 instead of 0.8 µs: there is one for each message
            number, tag, bits = _SETTLING.unpack(payload)
            if number == _ACK:
                return methods.BasicAck(tag, bits & 1 != 0)
            if number == _NACK:
                return methods.BasicNack(tag, bits & 1 != 0, bits & 2 != 0)
            if number == _REJECT:
                return methods.BasicReject(tag, bits & 1 != 0)
        index = _INDEX.unpack_from(payload)
        method = BY_INDEX.get(index)
        if method is None:
            raise AmqpError(Reply.COMMAND_INVALID, f"there is no method {index[1]} of class {index[0]}")
        return method(*_arguments(payload, _LAYOUTS[method]))
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise malformed(f"the arguments of a method: {error}") from error


def _arguments(payload: bytes | memoryview, kinds: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    position, bits, end = 4, 0, len(payload)
    for kind in kinds:
        if kind == "Bit":
            if not bits:
                octet, position = payload[position], position + 1
            found.append(bool(octet >> bits & 1))
            bits += 1
            continue
        bits = 0
        if kind == "ShortText":
            begin = position + 1
            position = begin + payload[position]
            found.append(str(payload[begin:position], "utf-8"))
        elif kind == "LongText":
            begin = position + 4
            position = begin + _U32.unpack_from(payload, position)[0]
            found.append(bytes(payload[begin:position]))
        elif kind == "Fields":
            table, position = decode_table(payload, position)
            found.append(table)
        else:
            number = _NUMBERS[kind]
            found += number.unpack_from(payload, position)
            position += number.size
        if position > end:
            raise malformed("the arguments of a method end within one")
    if position < end:
        raise malformed(f"{end - position} bytes behind the arguments of a method")
    return found


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "ShortText": short_text,
    "LongText": long_text,
    "Fields": encode_table,
    **{kind: number.pack for kind, number in _NUMBERS.items()},
}
_PLANS: Final = {
    method: (_INDEX.pack(*method.index), tuple(map(_ENCODERS.get, kinds)))
    for method, kinds in _LAYOUTS.items()
}
"""The first bytes of each method, and what encodes its arguments: None for a bit."""


def encode_method(method: Method) -> bytes:
    """Return the payload of a method's frame.

    Raises :class:`ValueError` for a short string of more than 255 bytes, and for a number that does not fit.
    """
    try:
        return _encoded(method)
    except StructError as error:
        raise ValueError(f"{method} cannot be encoded: {error}") from error


def _encoded(method: Method) -> bytes:
    index, encoders = _PLANS[type(method)]
    pieces, octet, bits = [index], 0, 0
    for encode, value in zip(encoders, astuple(method), strict=True):
        if encode is None:
            octet |= value << bits
            bits += 1
            continue
        if bits:
            pieces.append(bytes((octet,)))
            octet = bits = 0
        pieces.append(encode(value))
    if bits:
        pieces.append(bytes((octet,)))
    return b"".join(pieces)
