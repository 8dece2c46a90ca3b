"""The plan of a read: the range of each log, cut by bytes so that every core has work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from pyspark.sql.datasource import InputPartition

from journal.constants import MIB
from journal.errors import InvalidSetting, UnknownPartition, UnknownTopic
from spark.source.by_time import first_since
from spark.source.logs import Log, Logs, Losses, Slice, lost, names_of
from spark.source.options import EARLIEST, LATEST, NOTHING_READ, Offsets, ReadOptions, Times
from spark.source.pushdown import Wanted

LEAST_TASK_BYTES = 4 * MIB
MOST_TASK_BYTES = 64 * MIB
"""The bytes of a task, which takes a second or so: a lost one is soon repeated, and the last one ends soon."""
TASKS_PER_CORE = 3


class Task(InputPartition):
    """The parts that one Spark task reads, one after the other."""

    def __init__(self, parts: tuple[Slice, ...]) -> None:
        super().__init__(parts)
        self.parts = parts


class Range(NamedTuple):
    """The range from ``first`` to ``end`` (exclusive) of a log."""

    log: Log
    first: int
    end: int


def subscribed(logs: Logs, options: ReadOptions) -> list[Log]:
    """Return the logs of the subscribed topics; raises UnknownTopic for a named one that does not exist."""
    found = chosen(logs, options)
    if missing := sorted(set(options.topics) - names_of(found)):
        known = sorted(names_of(logs.logs(lambda _: True)))
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise UnknownTopic(
            f"there is no topic {', '.join(missing)} in {options.place}; {NOTHING_READ}. There are: {shown or 'none'}"
        )
    there = {(log.topic, log.index) for log in found}
    wanted = {(topic, index) for topic, indexes in (options.assigned or {}).items() for index in indexes}
    if lacking := ", ".join(f"{topic}-{index}" for topic, index in sorted(wanted - there)):
        raise UnknownPartition(f"assign names {lacking}, which {options.place} does not have; {NOTHING_READ}")
    return found


def chosen(logs: Logs, options: ReadOptions) -> list[Log]:
    """Return the logs of the subscribed topics, or of those partitions of theirs that are assigned."""
    return [log for log in logs.logs(options.wants) if options.takes(log.topic, log.index)]


def ranges(logs: Logs, options: ReadOptions, wanted: Wanted, found: list[Log]) -> list[Range]:
    """Return the range of each log to be read, by the options and by the filters of the query."""
    starts = starting(logs, options, found, "earliest")
    ends = ending(logs, options, found)
    losses = Losses(options.fail_on_data_loss)
    result: list[Range] = []
    for log in found:
        if not wanted.allows(log.topic, log.index):
            continue
        first, end = inside(log, starts[log.number], ends[log.number], losses)
        first = max(first, wanted.offset.least)
        end = min(end, wanted.offset.most + 1)
        if options.clock_skew is not None and wanted.timestamp.least > -(1 << 62):
            # Apart from the difference of the clocks, a message is appended an unknown time after it was made.
            first = max(first, logs.first_since(log, wanted.timestamp.least - options.clock_skew))
        if first < end:
            result.append(Range(log, first, end))
    return result


def starting(logs: Logs, options: ReadOptions, found: list[Log], otherwise: Offsets) -> dict[int, int]:
    """Return the offset at which each log, by number, begins; it may lie outside of the log."""
    if options.starting_times is not None:
        return _at_times(logs, options, found, "startingOffsetsByTimestamp", options.starting_times)
    if options.starting_time is not None:
        return {each.number: logs.offset_for_time(each, options.starting_time, late=False) for each in found}
    return _named("startingOffsets", options.starting or otherwise, found)


def ending(logs: Logs, options: ReadOptions, found: list[Log]) -> dict[int, int]:
    """Return the offset (exclusive) at which each log, by number, ends; it may lie outside of the log."""
    if options.ending_times is not None:
        return _at_times(logs, options, found, "endingOffsetsByTimestamp", options.ending_times)
    if options.ending_time is not None:
        return {each.number: logs.offset_for_time(each, options.ending_time, late=True) for each in found}
    return _named("endingOffsets", options.ending or "latest", found)


def _at_times(
    logs: Logs, options: ReadOptions, found: list[Log], option: str, times: Times
) -> dict[int, int]:
    """Return the first offset of each log whose message has its time or a later one; if there is none, the
    log's end.
    """
    _check_named(option, times, found)
    losses, skew = Losses(options.fail_on_data_loss), options.clock_skew or 0
    first = {log.number: first_since(logs, log, times[log.topic][log.index], skew, losses) for log in found}
    late = [log for log in found if first[log.number] is None]
    if late and option.startswith("starting") and options.late_start == "error":
        raise InvalidSetting(
            f"{option}: no message of {', '.join(log.name for log in late[:10])} has the time that is given or a later "
            f"one; {NOTHING_READ}. startingOffsetsByTimestampStrategy=latest begins at the end there"
        )
    return {log.number: log.end if (at := first[log.number]) is None else at for log in found}


def _named(option: str, offsets: Offsets, found: list[Log]) -> dict[int, int]:
    if isinstance(offsets, str):
        return {log.number: log.start if offsets == "earliest" else log.end for log in found}
    _check_named(option, offsets, found)
    places = {EARLIEST: "start", LATEST: "end"}
    return {
        log.number: getattr(log, places[at]) if (at := offsets[log.topic][log.index]) < 0 else at
        for log in found
    }


def _check_named(option: str, offsets: Times, found: list[Log]) -> None:
    there = {(log.topic, log.index) for log in found}
    given = {(topic, index) for topic, each in offsets.items() for index in each}
    if given != there:
        less = ", ".join(f"{topic}-{index}" for topic, index in sorted(there - given)[:10])
        more = ", ".join(f"{topic}-{index}" for topic, index in sorted(given - there)[:10])
        raise UnknownPartition(
            f"{option} must name every partition that is subscribed to, and no other"
            + (f"; it lacks {less}" if less else "")
            + (f"; {more} is not subscribed to, or not there" if more else "")
            + f"; {NOTHING_READ}"
        )


def inside(log: Log, first: int, end: int, losses: Losses, advice: str = "") -> tuple[int, int]:
    """Both within the log; what was asked for and is not there is a loss, or an error.

    ``advice`` says what to do about what retention has taken; a batch begins elsewhere.
    """
    if max(first, end) > log.end:
        why = f"the log ends at offset {log.end}"
        losses.report(lost(log, log.end, max(first, end) - 1, why, "Give smaller ones, or -1 for its end"))
    if first < log.start and first < end:
        why = f"retention has taken all below offset {log.start}"
        advice = advice or f"Begin at {log.start}, or at -2 (earliest)"
        losses.report(lost(log, first, min(log.start, end) - 1, why, advice))
    return min(max(first, log.start), log.end), min(max(end, log.start), log.end)


def cut_into_tasks(logs: Logs, parts: Iterable[Range], least_tasks: int | None) -> list[Task]:
    """Cut parts into tasks of about the same number of bytes; small ones of several logs go together."""
    slices = [_sized(logs, each) for each in parts]
    total = sum(each.bytes for each in slices)
    cores = os.cpu_count() or 1
    most = min(max(total // (TASKS_PER_CORE * cores), LEAST_TASK_BYTES), MOST_TASK_BYTES)
    if least_tasks is not None:
        most = max(1, min(most, total // least_tasks))
    found: list[Task] = []
    together: list[Slice] = []
    size = 0
    for piece in (piece for each in slices for piece in _cut(logs, each, most)):
        if together and size + piece.bytes > most:
            found.append(Task(tuple(together)))
            together, size = [], 0
        together.append(piece)
        size += piece.bytes
    if together:
        found.append(Task(tuple(together)))
    return found


def _sized(logs: Logs, part: Range) -> Slice:
    """Return a part with its bytes: the whole log's if it is the whole log, else by the known places."""
    log, first, end = part
    if (first, end) == (log.start, log.end):
        return Slice(log, first, end, max(log.bytes, 1))
    points = logs.points(log, first, end)
    below = np.interp([first, end], points.offsets, points.bytes)
    return Slice(log, first, end, max(int(below[1] - below[0]), 1))


def _cut(logs: Logs, whole: Slice, most: int) -> list[Slice]:
    """Cut a slice into slices of about ``most`` bytes each, at any offsets: readers skip lower ones."""
    log, first, end, size = whole
    count = min(-(-size // most), end - first)
    if count <= 1:
        return [_only(whole)]
    points = logs.points(log, first, end)
    low, high = np.interp([first, end], points.offsets, points.bytes)
    wanted = np.linspace(low, high, count + 1)[1:-1]
    cuts = np.unique(np.interp(wanted, points.bytes, points.offsets).astype(np.int64)).tolist()
    edges = [first, *(cut for cut in cuts if first < cut < end), end]
    share = size // (len(edges) - 1)
    return [_only(Slice(log, low, high, share)) for low, high in pairwise(edges)]


def _only(part: Slice) -> Slice:
    """Return a slice with only the segments that it lies in, because it is sent to the task."""
    within = tuple(s for s in part.log.segments if s.base_offset < part.end and s.end_offset > part.first)
    return part._replace(log=replace(part.log, segments=within))
