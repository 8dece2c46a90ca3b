"""What a client finds at a broker, as plain data: recorded when a release's fixture is made, and found again later."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

VOLATILE = frozenset(
    (
        "address", "age", "bytes", "consumers", "correlation", "due", "due_at", "due_in", "is_on", "oldest", "owner",
        "prepared_age", "ready_bytes", "segments", "sessions", "unacknowledged", "waiting",
    )
)  # fmt: skip
"""Fields that time changes, or who is connected."""


def found(client: Any) -> dict[str, Any]:
    """Return all that the broker has, but for what changes by itself; nothing is changed by it."""
    return {
        "topics": {info.name: _topic(client, info) for info in client.topics()},
        "groups": {info.name: _group(client, info.name) for info in client.groups()},
        "queues": {info.name: _plain(info) for info in client.queues()},
        "exchanges": {info.name: _plain(info) for info in client.exchanges()},
        "transactions": sorted(
            (_plain(info) for info in client.transactions()), key=lambda info: str(info["xid"])
        ),
        "scheduled": sorted(
            (_plain(each) for each in client.list_scheduled()), key=lambda each: str(each["id"])
        ),
        "users": [_plain(user) for user in client.users()],
        "rules": _plain(client.rules()),
    }


def _topic(client: Any, info: Any) -> dict[str, Any]:
    return {
        "settings": _plain(info.settings),
        "partitions": [
            _messages(client, info.name, each.index, each.start_offset) for each in info.partitions
        ],
    }


def _messages(client: Any, topic: str, index: int, offset: int) -> list[Any]:
    said: list[Any] = []
    empty = False
    while not empty:
        some = client.read(topic, index, offset)
        empty = not some
        for message in some:
            offset = message.offset + 1
            said.append(_message(message))
    return said


def _message(message: Any) -> list[Any]:
    value = message.value
    return [
        message.offset,
        None if message.key is None else message.key.decode(),
        None if value is None else value.decode() if len(value) < 100 else sha256(value).hexdigest(),
        [[name, bytes(each).decode(errors="replace")] for name, each in message.headers],
        message.appended,
    ]


def _group(client: Any, name: str) -> dict[str, Any]:
    return {
        "positions": [_plain(each) for each in client.group_offsets(name)],
        "parked": [_plain(each) for each in client.parked(name)],
    }


def _plain(value: Any) -> Any:
    """Return a value as data of JSON, without what changes by itself."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    if fields is None and is_dataclass(value):
        fields = [field.name for field in dataclass_fields(value)]
    if fields is not None:
        return {name: _plain(getattr(value, name)) for name in fields if name not in VOLATILE}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
