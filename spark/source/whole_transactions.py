"""The ends of a stream's batch at which it holds whole transactions: as far as wanted, or less, never nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from journal.records.outcome_entry import ArchivedOutcome, Part


class Span(NamedTuple):
    """A log of the batch: it is read from ``first`` on, to ``cut`` if possible, and has messages up to ``end``.

    Up to the ``end`` of all logs every transaction is whole.
    """

    first: int
    cut: int
    end: int


def whole_cut(
    entries: Iterable[tuple[int, ArchivedOutcome]], logs: Mapping[int, Span]
) -> tuple[dict[int, int], int | None]:
    """Return the end of the batch in each log, by its number, and the archive's offset of the first transaction left
    out.

    ``entries`` are in the order of the decisions, which is that of the messages in each log. The place to which a
    transaction moves the ends back is behind all messages of earlier ones, so one pass is enough. If all ends come back
    to where the batch begins, it is that first transaction, with the messages before it.
    """
    cut = {number: span.cut for number, span in logs.items()}
    undecided = {number for number, span in logs.items() if span.first < span.cut}
    left_out: tuple[int, list[Part]] | None = None
    for offset, entry in entries:
        parts = [part for part in entry.parts if part.base_offset >= 0 and part.number in logs]
        if any(part.base_offset + part.count > cut[part.number] for part in parts):
            left_out = left_out or (offset, parts)
            for part in parts:
                cut[part.number] = max(logs[part.number].first, min(cut[part.number], part.base_offset))
        undecided -= {part.number for part in parts if part.base_offset >= cut[part.number]}
        if left_out is not None and not undecided:
            break
    if left_out is None:
        return cut, None
    if all(cut[number] == span.first for number, span in logs.items()):
        for part in left_out[1]:
            span = logs[part.number]
            cut[part.number] = max(span.first, min(part.base_offset + part.count, span.end))
    return cut, left_out[0]
