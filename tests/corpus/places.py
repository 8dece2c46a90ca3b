"""The places in a directory's files, named by the step that wrote the bytes and by what they are.

This reads a sound journal by :mod:`journal.formats` alone, so that it does not change with the reader that is judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.constants import BLOCK
from journal.records import record
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    blocks,
    unpack_file_header,
    unpack_group_header,
)
from tests.corpus.worlds import World
from tests.support.engine_room import contents

FILE_HEADER = 56


class Place(NamedTuple):
    """Some bytes of a file."""

    path: str
    position: int
    length: int


@dataclass
class Layout:
    """``files`` are the directory's, ``places`` by name, ``aliases`` what its files are called here."""

    files: dict[str, bytes]
    places: dict[str, Place] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """The LSN after the last one of each journal file that is no longer written."""
    steps: dict[int, str] = field(default_factory=dict)
    """By LSN."""
    held: dict[str, set[str]] = field(default_factory=dict)
    """The steps with records in each journal file."""
    _groups: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)

    def alias(self, path: str) -> str:
        """What a file is called: journal files, checkpoints and staged files have names that LSNs are in."""
        kind = path.partition("/")[0]
        if kind in ("journal", "checkpoints", "staged"):
            return self.aliases.get(path, f"{kind} new")
        return re.sub("0{4,}", "", path)

    def where(self, path: str, position: int) -> str:
        """What lies at a position that a finding names."""
        alias = self.alias(path)
        if not path.startswith("journal/"):
            return f"{alias} {'start' if position == 0 else 'inside'}"
        for start, end, step in self._groups.get(path, []):
            if start <= position < end:
                return f"{alias} {step}{'' if position == start else ' inside'}"
        return f"{alias} {'header' if position < FIRST_GROUP else 'end'}"


def laid_out(world: World) -> Layout:
    """What lies where in a world as it is at last."""
    files = contents(world.store.disk())
    layout = Layout(files)
    layout.steps = {lsn: step for step, (first, end) in world.steps.items() for lsn in range(first, end)}
    for kind, ending in (("journal", ".journal"), ("checkpoints", ".checkpoint"), ("staged", ".staged")):
        paths = sorted(path for path in files if path.startswith(kind) and path.endswith(ending))
        for number, path in enumerate(paths, 1):
            layout.aliases[path] = f"{kind} {number}"
            if kind == "journal":
                _journal_file(layout, path, paths[number] if number < len(paths) else None)
    for path, data in files.items():
        if data and not path.startswith("journal/") and path not in ("lock", "ballast"):
            alias = layout.alias(path)
            layout.places[f"{alias}|first bytes"] = Place(path, 0, min(len(data), 40))
            layout.places[f"{alias}|middle"] = Place(path, len(data) // 3, max(1, len(data) // 3))
            layout.places[f"{alias}|last bytes"] = Place(path, max(0, len(data) - 30), min(len(data), 30))
    return layout


def _journal_file(layout: Layout, path: str, following: str | None) -> None:
    data = layout.files[path]
    header = unpack_file_header(data, path)
    if following is not None:
        after = unpack_file_header(layout.files[following], following)
        if after.previous_first == header.first_lsn:
            layout.ends[path] = after.previous_end
    alias = layout.aliases[path]
    for copy in range(2):
        layout.places[f"{alias}|header copy {copy}"] = Place(path, copy * BLOCK, FILE_HEADER)
    position, groups = FIRST_GROUP, layout._groups.setdefault(path, [])
    held = layout.held.setdefault(path, set())
    view, lsn = memoryview(data), header.first_lsn
    while (group := unpack_group_header(view, position, header.salt)) is not None and group.first_lsn == lsn:
        end = position + blocks(GROUP_HEADER_BYTES + group.length)
        steps = [layout.steps.get(group.first_lsn + number, "") for number in range(group.records)]
        held.update(steps)
        groups.append((position, end, steps[0]))
        _group(layout, path, position, steps)
        used = position + GROUP_HEADER_BYTES + group.length
        if end > used:
            layout.places[f"{steps[-1]}|rest of the block"] = Place(path, used, end - used)
        position, lsn = end, lsn + group.records
    layout.places[f"{alias}|behind the last group"] = Place(path, position, len(data) - position)


def _group(layout: Layout, path: str, position: int, steps: list[str]) -> None:
    """Name the parts of a group. Of a step with several groups the last one is named."""
    layout.places[f"{steps[0]}|group header"] = Place(path, position, GROUP_HEADER_BYTES)
    at, data = position + GROUP_HEADER_BYTES, layout.files[path]
    for number, step in enumerate(steps):
        length, head = record.lengths(data, at)
        parts = {
            "header": Place(path, at, record.HEADER_BYTES),
            "head": Place(path, at + record.HEADER_BYTES, head),
            "data": Place(path, at + record.HEADER_BYTES + head, length - record.HEADER_BYTES - head),
        }
        for what, place in parts.items():
            if place.length:
                if number == 0 or steps[number - 1] != step:
                    layout.places[f"{step}|first record|{what}"] = place
                layout.places[f"{step}|last record|{what}"] = place
        at += length
