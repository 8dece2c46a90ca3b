"""The schema of the settings file, as JSON Schema (draft 2020-12), for editors and for checks before a deployment.

It is made from the settings themselves. What it cannot say, as that ``pool_bytes`` must be twice ``max_request``, only
:func:`txbroker.server.settings.config.merged` finds.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, get_args, get_type_hints

from journal.quantities import SIZE_UNITS, TIME_UNITS, Quantity, quantities_of
from txbroker.server.settings import config

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXTS: Final = {
    Quantity.DURATION: rf"^(0|(\d{{1,20}}({'|'.join(sorted(TIME_UNITS, key=len, reverse=True))}))+)$",
    Quantity.SIZE: rf"^\d{{1,20}}({'|'.join(SIZE_UNITS)})?$",
    Quantity.COUNT: r"^\d{1,20}$",
}
"""The texts that are read as each quantity (:mod:`journal.quantities`)."""

_OFF: Final = {"const": "off"}


def schema() -> dict[str, Any]:
    """Return the schema of a settings file."""
    defaults = config.defaults()
    properties = {}
    for name in sorted(config.KNOWN):
        properties[name] = _values(name)
        if name in defaults:
            properties[name]["default"] = default(name, defaults[name])
    return {
        "$schema": DRAFT,
        "title": "Settings of txbroker",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def default(name: str, value: Any) -> Any:
    """Return a value as a file may have it."""
    return list(value) if isinstance(value, tuple) else config.readable(name, value) if value != "" else ""


def _values(name: str) -> dict[str, Any]:
    place = config.KNOWN[name]
    kind = get_type_hints(place.part)[place.field]
    kinds = (kind, *get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [choice.value for choice in kind]}
    if bool in kinds:
        return {"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]}
    quantity = quantities_of(place.part).get(place.field)
    if quantity is not None:
        choices: list[dict[str, Any]] = [{"type": "string", "pattern": _TEXTS[quantity]}]
        choices.append({"const": 0} if quantity is Quantity.DURATION else {"type": "integer", "minimum": 0})
        return {"anyOf": [*choices, _OFF] if type(None) in kinds else choices}
    if str in kinds and tuple in (getattr(one, "__origin__", one) for one in kinds):
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    return {"type": "string"}
