"""The stranger is a client made only of docs/wire_protocol.md: its framing, its tables, and a library for msgpack.

Nothing here is imported from the broker. What the tables say is held to: a value of another type, a field too many, a
number or an error that is in no table is a :class:`Misfit`.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import msgpack

from tests.support.repository import DOCS

TEXT = (DOCS / "wire_protocol.md").read_text()
PLAIN = {"int": int, "str": str, "bytes": bytes, "bool": bool, "float": (int, float)}


class Misfit(Exception):
    """The document does not say so."""


class Field(NamedTuple):
    name: str
    type: str
    default: str | None


class Head(NamedTuple):
    tag: int
    name: str
    fields: list[Field]


def table(name: str) -> list[list[str]]:
    """The cells of a table's rows."""
    [body] = re.findall(rf"<!-- table {name} -->\n((?:\|.*\n)*)", TEXT)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in body.splitlines()[2:]]


def parts(text: str) -> Iterator[str]:
    """What stands between commas, but for those inside of brackets."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def fields(text: str) -> list[Field]:
    if text == "–":
        return []
    found = []
    for part in parts(text):
        name, _, rest = part.partition(": ")
        kind, _, default = rest.partition(" = ")
        found.append(Field(name, kind, default or None))
    return found


HEADS = [
    Head(int(tag), name.strip("`"), fields(of))
    for union in ("requests", "answers")
    for tag, name, of, _ in table(union)
]
BY_NAME = {head.name: head for head in HEADS}
BY_TAG = {head.tag: head for head in HEADS}
STRUCTURES = {name.strip("`"): fields(of) for name, of, _ in table("structures")}
NUMBERS = {(of.strip("`"), int(number)): name for of, number, name, _ in table("numbers")}
WORDS = {of.strip("`"): set(re.findall(r"`(\w+)`", words)) for of, words, _ in table("words")}
ERRORS = {name.strip("`") for name, *_ in table("errors")}


def put(kind: str, value: Any) -> Any:
    """What msgpack is given for a value: structures are dicts, members of a numbered kind their names."""
    if kind.endswith("?"):
        return None if value is None else put(kind[:-1], value)
    if kind.startswith("["):
        return [put(kind[1:-1], each) for each in value]
    if kind.startswith("{"):
        key, _, of = kind[1:-1].partition(": ")
        return {put(key, name): put(of, each) for name, each in value.items()}
    if kind.startswith("("):
        return [put(part, each) for part, each in zip(parts(kind[1:-1]), value, strict=True)]
    if kind in STRUCTURES:
        return put_fields(STRUCTURES[kind], value)
    if " or " in kind:
        return put_head(*value) if isinstance(value, tuple) else one_of(kind, value)
    if numbers := [number for (of, number), name in NUMBERS.items() if (of, name) == (kind, value)]:
        return numbers[0]
    return word(kind, value) if kind in WORDS else fitting(kind, value)


def put_fields(of: list[Field], values: dict[str, Any]) -> list[Any]:
    """As far as there are values; behind them the defaults are left out."""
    if unknown := values.keys() - {field.name for field in of}:
        raise Misfit(f"no field {unknown}")
    last = max((n for n, field in enumerate(of) if field.name in values or field.default is None), default=-1)
    return [
        put(field.type, values[field.name]) if field.name in values else default(field)
        for field in of[: last + 1]
    ]


def default(field: Field) -> Any:
    if field.type.isdigit():
        return int(field.type)
    if field.default is None:
        raise Misfit(f"{field.name} has no default")
    if field.default in ("nil", "true", "false"):
        return {"nil": None, "true": True, "false": False}[field.default]
    if field.type == "bytes":
        return b"" if field.default == '""' else bytes(16)
    if field.default.startswith("["):
        return [None if each == "nil" else int(each) for each in field.default[1:-1].split(", ") if each]
    return field.default.strip('"') if field.default.startswith('"') else int(field.default)


def put_head(name: str, correlation: int, values: dict[str, Any]) -> list[Any]:
    head = BY_NAME[name]
    return [head.tag, correlation, *put_fields(head.fields, values)]


def fitting(kind: str, value: Any) -> Any:
    if kind not in PLAIN or not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
        raise Misfit(f"{value!r} is no {kind}")
    return value


def word(kind: str, value: Any) -> Any:
    if value not in WORDS[kind]:
        raise Misfit(f"{value!r} is no {kind}")
    return value


def one_of(kinds: str, value: Any) -> Any:
    if not any(isinstance(value, PLAIN[each]) for each in kinds.split(" or ")):
        raise Misfit(f"{value!r} is no {kinds}")
    return value


def take(kind: str, value: Any) -> Any:
    """A value off the wire, as the tables have it."""
    if kind.endswith("?"):
        return None if value is None else take(kind[:-1], value)
    if kind.startswith("[") and isinstance(value, list):
        return [take(kind[1:-1], each) for each in value]
    if kind.startswith("(") and isinstance(value, list):
        return tuple(take(part, each) for part, each in zip(parts(kind[1:-1]), value, strict=True))
    if kind.startswith("{") and isinstance(value, dict):
        of, _, to = kind[1:-1].partition(": ")
        return {take(of, key): take(to, each) for key, each in value.items()}
    if kind in STRUCTURES:
        return take_fields(STRUCTURES[kind], value)
    if kind.isdigit() and value == int(kind):
        return value
    if any(of == kind for of, _ in NUMBERS):
        return NUMBERS[kind, value]
    if kind in WORDS:
        return word(kind, value)
    if " or " in kind:
        return take_head(value) if isinstance(value, list) else one_of(kind, value)
    return fitting(kind, value)


def take_fields(of: list[Field], values: list[Any]) -> dict[str, Any]:
    if len(values) > len(of):
        raise Misfit(f"{len(values)} fields instead of {len(of)}: {values}")
    found = {field.name: take(field.type, value) for field, value in zip(of, values, strict=False)}
    for field in of[len(values) :]:
        found[field.name] = default(field)
    if found.get("error") and found["error"] not in ERRORS:
        raise Misfit(f"no error {found['error']}")
    return found


def take_head(values: list[Any]) -> dict[str, Any]:
    tag, correlation, *rest = values
    head = BY_TAG[tag]
    return {"": head.name, "correlation": correlation, **take_fields(head.fields, rest)}


class Stranger:
    """A connection. What it has asked and been told is counted by names."""

    def __init__(self, port: int) -> None:
        self.asked: set[str] = set()
        self.told: set[str] = set()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20.0)
        self._correlation = 0

    def close(self) -> None:
        self._socket.close()

    def log_in(self, client: str, **values: Any) -> dict[str, Any]:
        """Say hello, and log in as one who need not; the welcome."""
        self.ask("Hello", magic="txbroker", versions=[3], client=client)
        return self.ask("Login", mechanism="ANONYMOUS", **values)

    def say(self, name: str, data: bytes = b"", /, **values: Any) -> int:
        """Send a request; its correlation."""
        self._correlation += 1
        self.asked.add(name)
        head = msgpack.encode(put_head(name, self._correlation, values))
        total = 8 + len(head) + len(data)
        self._socket.sendall(
            struct.pack(">II", total, len(head)) + head + struct.pack(">I", len(data)) + data
        )
        return self._correlation

    def hear(self) -> tuple[dict[str, Any], bytes]:
        """The next answer, and its data."""
        [total] = struct.unpack(">I", self._exactly(4))
        message = self._exactly(total)
        [size] = struct.unpack_from(">I", message)
        answer = take_head(msgpack.decode(message[4 : 4 + size]))
        [length] = struct.unpack_from(">I", message, 4 + size)
        data = message[8 + size :]
        if len(data) != length:
            raise Misfit(f"{len(data)} bytes of data instead of {length}")
        self.told.add(answer[""])
        return answer, data

    def ask(self, name: str, data: bytes = b"", /, **values: Any) -> dict[str, Any]:
        """Send a request and wait for its answer, which is the next."""
        return self.read(name, data, **values)[0]

    def read(self, name: str, data: bytes = b"", /, **values: Any) -> tuple[dict[str, Any], bytes]:
        """The same, with the answer's data."""
        correlation = self.say(name, data, **values)
        answer, found = self.hear()
        if answer["correlation"] != correlation:
            raise Misfit(f"the answer to {correlation} has {answer['correlation']}")
        return answer, found

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            some = self._socket.recv(size - len(found))
            if not some:
                raise ConnectionError("the broker closed the connection")
            found += some
        return found
