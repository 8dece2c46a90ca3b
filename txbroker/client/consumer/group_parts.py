"""The fetches of a consumer for its group: what is asked for in which partition, and what the answers tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from journal.formats import frame
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from txbroker.client.consumer.read_ahead import Again, Pieces, decoded
from txbroker.client.core.left_out import LeftOut
from txbroker.client.core.positions import Position
from txbroker.wire.messages import FetchedPartition, Reader

MOST_MISSING: Final = 60_000
"""Most bytes of missing offsets in one fetch; the broker takes 64 KiB."""


_NOTHING = OffsetSet()


class Entry(NamedTuple):
    """One position of a fetch. ``base`` is what the sets in its answer are relative to."""

    position: Position
    offset: int
    until: int
    base: int
    missing: OffsetSet | None = None
    """What it asks for of that which waits in its partition."""
    is_again: bool = False
    """Whether it reads again what was left out."""


def entries_of(
    positions: Iterable[Position], wanted: Iterable[tuple[int, int, int]], group: str
) -> tuple[list[Entry], Reader]:
    """Return what to ask for: what is wanted, what waits in all partitions, and what was left out and is free."""
    by_number = {each.number: each for each in positions if not (each.ended or each.rests)}
    entries: list[Entry] = []
    missing: list[tuple[int, bytes, int]] = []
    again: list[Entry] = []
    room = MOST_MISSING
    asked = {number: (offset, until) for number, offset, until in wanted}
    for number, position in by_number.items():
        waiting = position.left.missing
        ready = position.left.ready() if position.left else []
        again += [Entry(position, first, end, first, is_again=True) for first, end in ready]
        if ready:  # what is new comes after what may be handed out again, or the latter would only grow
            asked.pop(number, None)
        tells = False
        if waiting:
            said = encode_offsets(waiting, waiting.first)
            room -= len(said)
            tells = room >= 0
        if tells:
            missing.append((number, said, waiting.first))
            offset, until = asked.get(number, (waiting.end, waiting.end))
            entries.append(Entry(position, offset, until, min(offset, waiting.first), waiting.copy()))
        elif number in asked:
            entries.append(Entry(position, *asked[number], asked[number][0]))
    order = {number: place for place, (number, _, _) in enumerate(wanted)}
    entries.sort(key=lambda each: order.get(each.position.number, len(order)))
    # What comes again is asked for before what is new, which may fill the answer; and behind what waits in its
    # partition, which is told with the first position there.
    fresh = [each for each in entries if each.position.number in asked]
    entries = [*(each for each in entries if each.position.number not in asked), *again, *fresh]
    return entries, Reader(group, 0, [each.position.generation for each in entries], missing)


def in_order(
    parts: Iterable[tuple[Entry, FetchedPartition, memoryview]],
) -> Iterator[tuple[Entry, FetchedPartition, memoryview]]:
    """Yield the parts of an answer, without runs that are read again behind one that has ended early.

    An answer may end anywhere in a partition. What comes of a later run would overtake the rest of the earlier one; it
    is left out still, and read in the next fetch.
    """
    ended: set[int] = set()
    for entry, part, data in parts:
        if entry.is_again and entry.position.left.order is not None:
            if part.partition in ended:
                continue
            if part.error or part.next_offset < entry.until:
                ended.add(part.partition)
        yield entry, part, data


def take(entry: Entry, part: FetchedPartition, data: memoryview, max_run: int | None) -> Pieces | None:
    """Take what an answer tells of a partition; return the messages to hand out, None for none."""
    position, left = entry.position, entry.position.left
    is_blocked = left.blocks
    for offset, attempts in part.attempts:
        if not attempts:
            position.alone.add(offset)
    finished = decode_offsets(part.finished, entry.base)
    waiting = decode_offsets(part.waiting, entry.base)
    if entry.is_again:
        left.told(_NOTHING, finished, waiting)
        left.wait_again(waiting)
        run = entry.offset, left.readable(entry.until)
        return Again(left, frame.decode_pieces(data, entry.offset), run, finished, waiting)
    if entry.missing is not None:
        left.told(entry.missing, finished, waiting)
    if part.next_offset <= entry.offset or position.next != entry.offset or is_blocked:
        return None
    left.forget_from(entry.offset)
    end = part.next_offset
    waits = waiting.within(entry.offset, end)
    if waits and left.order == "partition":
        end = waits.first
        left.block(end)
    if left.order != "partition" or position.has_gaps:
        position.given.update(finished.within(entry.offset, end))
    if not part.length:
        position.next = end
        return None
    pieces = decoded(data, entry.offset, max_run)
    return fresh(position, left, pieces, finished, waits, end)


def fresh(
    position: Position, left: LeftOut, pieces: Pieces, finished: OffsetSet, waiting: OffsetSet, end: int
) -> Pieces:
    """Yield the messages below ``end`` that may be handed out now; the others are left out, or finished.

    If it is not drawn to its end, what is left out beyond the last message is read anew.
    """
    for messages, size in pieces:
        if finished or waiting or left or messages[-1].offset >= end:
            kept = [
                each
                for each in messages
                if each.offset < end
                and each.offset not in finished
                and left.admits(each, each.offset in waiting)
            ]
        else:
            kept = messages
        if len(kept) < len(messages) and left and left.order != "partition":
            position.has_gaps = True
        if kept:
            position.upto = min(messages[-1].offset + 1, end)
            yield kept, size
    position.next = max(position.next, end)
