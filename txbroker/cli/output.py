"""The output of commands: one JSON document (or one per line), or a table for people. Never both."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from journal.words import count_text as count_text  # the whole command line writes counts so

UNCUT = 10_000
"""The width of a page that is no terminal: nothing is cut or wrapped in a file or a pipe."""

FOLDED = 24
"""Columns up to this width are never folded, wider ones never narrower, so that no number is cut."""

Json = Mapping[str, object] | Sequence[Mapping[str, object]]


def console(stderr: bool = False) -> Console:
    """Return the terminal, or an endlessly wide page if there is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNCUT
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


FILTERED: Final = "There may be others, which you may not describe."


def emit(as_json: bool, data: Json, human: Callable[[], RenderableType]) -> None:
    """Print a command's answer."""
    if as_json:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    shown = console()
    with shown.capture() as captured:
        shown.print(human())
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def wrapped(text: str, stream: IO[Any]) -> str:
    """Return a paragraph wrapped to the terminal's width; unchanged if the stream is no terminal."""
    return textwrap.fill(text, min(100, shutil.get_terminal_size().columns)) if stream.isatty() else text


def json_line(data: dict[str, object]) -> str:
    """Return one document of a stream of them, on one line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    narrow: list[RenderableType] | None = None,
    least: Mapping[str, int] | None = None,
) -> RenderableType:
    """Return a table; numbers are aligned right, ``None`` is a dash. ``empty`` replaces a table without rows.

    ``narrow`` are the rows for a terminal that has no room for the table; without it names and values. ``least`` is how
    much room a column must have, if it is wider than that, in place of ``FOLDED``.
    """
    cells = [list(row) for row in rows]
    if not cells:
        return Text(empty)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    needed = 3 * (len(columns) - 1)
    for index, name in enumerate(columns):
        right = all(isinstance(row[index], int | float | None) for row in cells)
        width = max(cell_len(name), *(cell_len(cell_text(row[index])) for row in cells))
        own = (least or {}).get(name, FOLDED)
        needed += min(width, own)
        made.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=width <= own)
    for row in cells:
        made.add_row(*(Text(cell_text(cell)) for cell in row))
    return _Fitting(made, needed, narrow or [facts(zip(columns, row, strict=True)) for row in cells])


@dataclass
class _Fitting:
    """A table, or, if its narrow columns find no room beside each other, its rows below each other."""

    table: Table
    least: int
    records: list[RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.least <= options.max_width:
            yield self.table
            return
        for number, record in enumerate(self.records):
            if number:
                yield ""
            yield record


def facts(pairs: Iterable[tuple[str, object]]) -> RenderableType:
    """Return names and values below each other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, style="bold"), Text(cell_text(value)))
    return grid


def cell_text(value: object) -> str:
    """Return a value for people; text from outside cannot control the terminal."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, bytes):
        return bytes_text(value)
    return visible(str(value))


def visible(text: str) -> str:
    """Return the text with every character that does not print written as its escape: no bell, no colours, no lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text, with a sign where something is left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


def bytes_text(value: bytes | None) -> str:
    """Return bytes for people: as text if they are UTF-8, else ``0x`` and hex; ``None`` is a dash."""
    if value is None:
        return "–"
    try:
        return visible(value.decode())
    except UnicodeDecodeError:
        return "0x" + value.hex()


def bytes_json(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes for JSON: a string if they are UTF-8, else ``{"base64": ...}``; ``None`` is null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def time_text(micros: int) -> str:
    """Return µs since 1970 as ISO 8601 in UTC, to the millisecond; unchanged if no calendar has the time."""
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} µs"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(micros: int) -> str:
    """Return a duration in µs in its two largest units."""
    if micros < 1_000_000:
        return f"{micros // 1_000} ms"
    rest, parts = micros // 1_000_000, []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= seconds:
            parts.append(f"{rest // seconds}{unit}")
            rest %= seconds
    return " ".join(parts[:2])


def size_text(count: int) -> str:
    """Return bytes in the largest unit that leaves a whole part."""
    if count < 1 << 10:
        return f"{count} B"
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}"
