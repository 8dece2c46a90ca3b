"""The lines of a dump: every kind of item as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from journal.check import Finding, FrameEntry, IndexItem, Item, JournalEntry, SectionItem
from journal.errors import CompressionUnavailable, InvalidFrame
from journal.folds.access import AccessFold
from journal.folds.group import GroupRow
from journal.folds.schedule import LogRow, TimesRow
from journal.folds.streams import Stream
from journal.folds.timetable import Some
from journal.formats import frame
from journal.formats.checkpoint import Rows
from journal.formats.envelope import place_of
from journal.formats.frame import GAP, LOST, Message
from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from journal.formats.segment_header import SegmentHeader
from journal.formats.staged_header import StagedHeader
from journal.records.access_entries import Rule, User
from journal.records.access_secrets import HIDDEN, without_secrets
from journal.records.group_entries import GroupPositions, GroupSettings, RetryRules, Settled, Unfinished
from journal.records.journal_headers import FileHeader
from journal.records.queue_entries import (
    Binding,
    ExchangeSettings,
    Queue,
    QueueSettings,
    Scalar,
    exchange_of,
    is_mandatory,
)
from journal.records.record import (
    Cancelled,
    Due,
    Published,
    StreamClaimed,
    StreamReleased,
    TransactionPrepared,
)
from journal.records.schedule_records import TakenBack
from journal.records.stream_entries import Delivered
from journal.transaction_states import TransactionNumber
from journal.xid import Xid
from txbroker.cli.directory.data_directory import finding_json
from txbroker.cli.directory.findings import severity
from txbroker.cli.output import bytes_json, bytes_text, visible
from txbroker.cli.queue_description import queue_settings_json

PREVIEW_BYTES = 60
"""How many bytes of a value are shown to people."""

SHOWN_ENTRIES = 8 * 100
"""How many bytes of a row of the timetable are shown as ids and times."""

_BARE = ("lsn", "offset", "record", "section", "header", "values")


def line_json(each: Item, values: bool = False) -> dict[str, Any]:
    """Return one line of a dump for programs; with ``values`` the messages of frames too."""
    if isinstance(each, Finding):
        return finding_json(each)
    if isinstance(each, FrameEntry):
        line = {
            "offset": each.offset, "messages": each.messages, "appended": each.appended, "timestamp": each.timestamp,
            "flag": each.flag, "position": each.position, "bytes": each.length,
        }  # fmt: skip
        return line | (_values(each.frame) if values and not each.flag & (LOST | GAP) else {})
    if isinstance(each, IndexItem):
        return {name: value for name, value in each._asdict().items() if value is not None}
    if isinstance(each, SegmentHeader):
        return {"header": "segment", **each._asdict(), "nonce": each.nonce.hex()}
    if isinstance(each, StagedHeader):
        return {"header": "staged file", "transaction": str(each.number), "salt": each.salt}
    if isinstance(each, FileHeader):
        return {"header": "journal file", **each._asdict()}
    if isinstance(each, SectionItem):
        return {"position": each.position, **_section(each.section)}
    return _record(each, values)


def _record(each: JournalEntry, values: bool) -> dict[str, Any]:
    record = without_secrets(each.record)
    kind = type(record)
    fields = {name: _plain(getattr(record, name)) for name in kind.__struct_fields__}
    line = {
        "lsn": each.lsn, "record": kind.__name__, **fields, "bytes": len(each.data), "file": each.path,
        "position": each.position,
    }  # fmt: skip
    if isinstance(record, StreamClaimed | StreamReleased):
        line["stream"] = record.stream.hex()
    if isinstance(record, Due):
        line |= {"ids": [_scheduled(number) for number in record.ids], "gone": _scheduled_pairs(record.gone)}
    if isinstance(record, Cancelled):
        line["messages"] = _scheduled_pairs(record.messages)
    if isinstance(record, TransactionPrepared):
        line["taken_back"] = _scheduled_pairs(record.taken_back)
    if isinstance(record, Published):
        line |= {"exchange": exchange_of(record.address), "mandatory": is_mandatory(record.address)}
        line["ids"] = [_scheduled(number) for number in record.ids]
    if each.beyond:
        line["beyond_damage"] = True
    return line | (_values(each.data) if values and each.data else {})


def _plain(value: Any) -> Any:
    """Return an xid in the form that all commands take, instead of base64; and what groups settle, users, rules, queues
    and bindings with their names.
    """
    if isinstance(value, Xid):
        return str(value)
    if isinstance(value, _NAMED):
        return _named(value)
    return [_plain(each) for each in value] if isinstance(value, list) else msgspec.to_builtins(value)


_NAMED: Final = (
    Binding, Delivered, ExchangeSettings, GroupPositions, GroupSettings, Queue, RetryRules, Rule, Settled, TakenBack,
    User,
)  # fmt: skip
"""The parts of records whose fields are shown with their names."""


def _section(section: Any) -> dict[str, Any]:
    return {"section": type(section).__name__, **_named(section)}


def _named(value: Any) -> Any:
    """The row of a fold, or a part of it, with the names that the fold gives its fields."""
    value = without_secrets(value)
    if (shape := _SHAPES.get(type(value))) is not None:
        return shape(value)
    if isinstance(value, Xid | TransactionNumber):
        return str(value)
    if isinstance(value, Rows) and value.fold == AccessFold.name:
        typed = [each if isinstance(each, msgspec.Struct) else HIDDEN for each in value.rows]
        return _shape(replace(value, rows=typed))  # what has no known form may hold secrets anywhere
    if isinstance(value, msgspec.Struct):
        return _shape(value)
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    return bytes_json(value) if isinstance(value, bytes) else msgspec.to_builtins(value)


def _shape(value: msgspec.Struct) -> dict[str, Any]:
    return {name: _named(getattr(value, name)) for name in value.__struct_fields__}


def _settled_shape(value: Settled) -> dict[str, Any]:
    shape = _shape(value) | {"finished": _finished(value.finished, value.base)}
    del shape["retried"]  # no record has any
    return shape


def _stream_shape(value: Delivered | Stream) -> dict[str, Any]:
    return _shape(value) | {"stream": value.stream.hex()}


def _taken_back_shape(value: TakenBack) -> dict[str, Any]:
    return {"taken_back": _scheduled_pairs(value.messages)}


def _log_shape(value: LogRow) -> dict[str, Any]:
    sets = {name: _set(getattr(value, name), value.begins) for name in ("over", "cancelled")}
    return _shape(value) | sets


def _times_shape(value: TimesRow) -> dict[str, Any]:
    some = Some(value.start, value.width, value.items[:SHOWN_ENTRIES])
    due = [(at, _scheduled(entry)) for at, entry in some.entries()]
    return _shape(value) | {"messages": len(value.items) // 8, "items": due}


def _group_shape(value: GroupRow) -> dict[str, Any]:
    positions = {partition: offset for partition, offset, _ in value.positions}
    settlements = [
        _shape(each) | {"finished": _set(each.finished, positions[each.partition])}
        for each in value.settlements
    ]
    return _shape(replace(value, settlements=[])) | {"settlements": settlements}


def _exchange_shape(value: ExchangeSettings) -> dict[str, Any]:
    return _shape(value) | {"kind": value.kind.word}


def _queue_settings_shape(value: QueueSettings) -> dict[str, Any]:
    return queue_settings_json(value)


def _unfinished_shape(value: Unfinished) -> dict[str, Any]:
    return _shape(value) | {"death": value.death.name.lower()}


def _binding_shape(value: Binding) -> dict[str, Any]:
    return _shape(value) | {"arguments": {name: _scalar(each) for name, each in value.arguments}}


_SHAPES: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    Binding: _binding_shape,
    Delivered: _stream_shape,
    ExchangeSettings: _exchange_shape,
    GroupRow: _group_shape,
    LogRow: _log_shape,
    QueueSettings: _queue_settings_shape,
    Settled: _settled_shape,
    Stream: _stream_shape,
    TakenBack: _taken_back_shape,
    TimesRow: _times_shape,
    Unfinished: _unfinished_shape,
}
"""What is shown in another form than its fields have."""


def _scalar(value: Scalar) -> Any:
    """Return a value of a binding's argument; one that is not finite has no form in JSON, and is shown as text."""
    if isinstance(value, bytes):
        return bytes_json(value)
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _finished(data: bytes, base: int) -> Any:
    """Return the runs of a set of finished offsets, the first of them if there are many; its bytes if it is none."""
    try:
        return str(decode_offsets(data, base))
    except InvalidFrame as error:
        return {"undecodable": str(error), "bytes": bytes_json(data)}


def _set(pieces: list[bytes], base: int) -> list[Any]:
    """Return the runs of a set of offsets that a row has in pieces."""
    return [_finished(piece, base + number * MAX_SPAN) for number, piece in enumerate(pieces)]


def _scheduled(number: int) -> str:
    """Return the id of a scheduled message as people see it: its log, and its offset there."""
    log, offset = place_of(number)
    return f"{log}-{offset}"


def _scheduled_pairs(messages: list[tuple[int, int]]) -> list[list[Any]]:
    return [[_scheduled(number), partition] for number, partition in messages]


def _values(run: memoryview) -> dict[str, Any]:
    try:
        messages = frame.decode_run(run)
    except (InvalidFrame, CompressionUnavailable) as error:
        return {"values": [], "undecodable": str(error)}
    return {"values": [_message(message) for message in messages]}


def _message(message: Message) -> dict[str, Any]:
    headers = [[name, bytes_json(value)] for name, value in message.headers]
    return {
        "offset": message.offset, "key": bytes_json(message.key), "value": bytes_json(message.value),
        "headers": headers,
    }  # fmt: skip


def line_text(each: Item, values: bool = False) -> str:
    """Return the same for people: the kind of item first, then its fields."""
    if isinstance(each, Finding):
        return _finding(each)
    line = line_json(each, values)
    first = str(line.get("lsn", line.get("offset", line.get("header", line.get("section", "")))))
    if "session" in line and "serial" in line:
        line = {"transaction": f"{line.pop('session')}-{line.pop('serial')}"} | line
    rest = [
        f"{name}={value}"
        for name, value in line.items()
        if name not in _BARE and value is not None and value not in ({}, [], "")
    ]
    shown = visible(" ".join(part for part in (first, str(line.get("record", "")), *rest) if part))
    return "\n".join([shown, *(_preview(message) for message in line.get("values", ()))])


def _finding(each: Finding) -> str:
    affects = f" (affects {each.affects})" if str(each.affects) else ""
    return visible(f"{severity(each)} {each.path} at byte {each.position}: {each.problem}{affects}")


def _preview(message: dict[str, Any]) -> str:
    key = "" if message["key"] is None else f"{_short(message['key'])}: "
    return f"    {message['offset']}  {key}{_short(message['value'])}"


def _short(value: object) -> str:
    """Return the beginning of a key or value, as the JSON has it."""
    if value is None:
        return bytes_text(None)
    text = visible(value) if isinstance(value, str) else f"base64 {value['base64']}"  # type: ignore[index]
    return text if len(text) <= PREVIEW_BYTES else f"{text[:PREVIEW_BYTES]}... ({len(text):,} characters)"
