"""The tables of docs/wire_protocol.md are made from the code: ``python -m tests.wire.wire_tables`` writes them."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import re
import types
import typing

import msgspec

from tests.support.repository import DOCS
from txbroker import errors
from txbroker.wire import messages
from txbroker.wire.answers import Answer
from txbroker.wire.requests import Request

PATH = DOCS / "wire_protocol.md"
_PLAIN = {int: "int", str: "str", bytes: "bytes", bool: "bool", float: "float"}


def typed(kind: typing.Any) -> str:
    """A type as the document writes it."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return typed(parts[0])
    if kind in (messages.AnyRequest, messages.AnyAnswer):
        return "request" if kind == messages.AnyRequest else "answer"
    if origin in (typing.Union, types.UnionType):
        some = [typed(part) for part in parts if part is not types.NoneType]
        return " or ".join(some) + ("?" if len(some) < len(parts) else "")
    if origin is list or (origin is tuple and parts[-1] is ...):
        return f"[{typed(parts[0])}]"
    if origin is tuple:
        return f"({', '.join(map(typed, parts))})"
    if origin is dict:
        return f"{{{typed(parts[0])}: {typed(parts[1])}}}"
    return _PLAIN.get(kind) or kind.__name__


def fields(kind: type) -> str:
    """The fields of a structure, with their types, and the defaults of those that may be left out at the end."""
    hints = typing.get_type_hints(kind, include_extras=True)
    tag = kind.__struct_config__.tag
    found = [] if tag is None or issubclass(kind, Request | Answer) else [f"kind: {tag}"]
    for field in msgspec.structs.fields(kind):
        if field.name == "correlation":
            continue
        text = f"{field.name}: {typed(hints[field.name])}"
        if not field.required:
            text += " = " + _default(field)
        found.append(text)
    return ", ".join(found) or "–"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory()
        return "random" if isinstance(made, bytes) else _shown(made)
    return _shown(field.default)


def _shown(value: object) -> str:
    if isinstance(value, enum.IntEnum):
        return value.name
    if isinstance(value, msgspec.Struct):
        return _shown([getattr(value, name) for name in value.__struct_fields__])
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return (
        {None: "nil", True: "true", False: "false"}.get(value)
        if isinstance(value, bool | None)
        else _literal(value)
    )


def _literal(value: object) -> str:
    return '""' if value == b"" else f'"{value}"' if isinstance(value, str) else str(value)


def meaning(kind: type) -> str:
    """A docstring in one line."""
    text = " ".join((kind.__doc__ or "").split())
    text = re.sub(r":\w+:`~?\.?(?:\w+\.)*(\w+)`", r"`\1`", text).replace("``", "`")
    return (
        text.replace("|", "\\|")
        .replace("None", "nil")
        .replace("docs/operations.md", "[operations.md](operations.md)")
    )


def structures() -> list[type]:
    """Those that requests and answers are made of, but for these themselves, by name; numbered and worded kinds too."""
    found: dict[str, type] = {}

    def look(kind: typing.Any) -> None:
        for part in typing.get_args(kind):
            look(part)
        if not isinstance(kind, type) or kind.__name__ in found:
            return
        if issubclass(kind, enum.Enum) or (
            issubclass(kind, msgspec.Struct) and not issubclass(kind, Request | Answer)
        ):
            found[kind.__name__] = kind
        if issubclass(kind, msgspec.Struct):
            for each in typing.get_type_hints(kind, include_extras=True).values():
                look(each)

    look(messages.AnyRequest)
    look(messages.AnyAnswer)
    return [found[name] for name in sorted(found)]


def _of_union(union: object, heading: str) -> list[str]:
    kinds = sorted(typing.get_args(union), key=lambda kind: kind.__struct_config__.tag)
    head = [f"| tag | {heading} | fields after the correlation | meaning |", "|---|---|---|---|"]
    return head + [
        f"| {kind.__struct_config__.tag} | `{kind.__name__}` | {fields(kind)} | {meaning(kind)} |"
        for kind in kinds
    ]


def _of_structures() -> list[str]:
    head = ["| structure | fields | meaning |", "|---|---|---|"]
    kinds = [kind for kind in structures() if issubclass(kind, msgspec.Struct)]
    return head + [f"| `{kind.__name__}` | {fields(kind)} | {meaning(kind)} |" for kind in kinds]


def _of_numbers() -> list[str]:
    kinds = _numbered()
    head = ["| of | number | name | meaning |", "|---|---|---|---|"]
    return head + [
        f"| `{kind.__name__}` | {each.value} | {each.name} | {of_members(kind)[each.name]} |"
        for kind in kinds
        for each in kind
    ]


def _of_words() -> list[str]:
    head = ["| of | words | meaning |", "|---|---|---|"]
    kinds = [kind for kind in structures() if issubclass(kind, enum.Enum) and kind not in _numbered()]
    return head + [
        f"| `{kind.__name__}` | {', '.join(f'`{each.value}`' for each in kind)} | {meaning(kind)} |"
        for kind in kinds
    ]


def _numbered() -> list[type]:
    return [kind for kind in structures() if issubclass(kind, enum.IntEnum)]


@functools.cache
def of_members(kind: type) -> dict[str, str]:
    """The strings behind the members of an enumeration."""
    [tree] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        ast.unparse(before).partition(" = ")[0]: " ".join(ast.literal_eval(text.value).split())
        for before, text in itertools.pairwise(tree.body)
        if isinstance(before, ast.Assign) and isinstance(text, ast.Expr)
    }


_FAMILIES = (errors.RequestRefused, errors.OutcomeUnknown, errors.StorageUnavailable, errors.CorruptData)


def _of_errors() -> list[str]:
    head = ["| error | is a | meaning |", "|---|---|---|"]
    found = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    rows = []
    for name in sorted(found):
        kind = found[name]
        if issubclass(kind, errors.TxBrokerError) and not name.startswith("_"):
            family = next((base.__name__ for base in kind.__mro__[1:] if base in _FAMILIES), "–")
            rows.append(f"| `{name}` | {family} | {meaning(kind).split('. ')[0].rstrip('.')} |")
    return head + rows


def tables() -> dict[str, str]:
    """By the name that a comment in the document has, before the table."""
    made = {
        "requests": _of_union(messages.AnyRequest, "request"),
        "answers": _of_union(messages.AnyAnswer, "answer"),
        "structures": _of_structures(),
        "numbers": _of_numbers(),
        "words": _of_words(),
        "errors": _of_errors(),
    }
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


_TABLE = re.compile(r"(<!-- table (\w+) -->\n)((?:\|.*\n)*)")


def documented() -> dict[str, str]:
    """What the document has."""
    return {name: table for _, name, table in _TABLE.findall(PATH.read_text())}


def main() -> None:
    """Write them into the document."""
    made = tables()
    PATH.write_text(_TABLE.sub(lambda found: found[1] + made[found[2]], PATH.read_text()))


if __name__ == "__main__":
    main()
