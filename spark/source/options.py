"""The options of a read: with the names of Spark's Kafka source where it has them, typed and checked; unknown ones are
refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from journal.errors import InvalidSetting
from journal.formats.spark_decision import GROUPS
from spark.quantities import micros

Place = Literal["earliest", "latest"]
Offsets = Place | dict[str, dict[int, int]]
"""Where to begin or end: everywhere the same, or an offset for each partition of each topic."""
Times = dict[str, dict[int, int]]
"""A time (µs since 1970 UTC) for each partition of each topic."""
LateStart = Literal["error", "latest"]
"""What to do if no message has the time at which to begin."""

EARLIEST, LATEST = -2, -1
"""The numbers by which Kafka's source names the two ends."""

NOTHING_READ = "nothing was read"
_SIZE = re.compile(r"(\d{1,18})\s*([kmg]?)i?b?")
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}


class View(Enum):
    """The kind of rows."""

    MESSAGES = "messages"
    TRANSACTIONS = "transactions"
    JOURNAL = "journal"
    SEGMENTS = "segments"


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, checked. Times are µs since 1970 UTC. ``docs/spark.md`` explains each.

    ``path`` or ``broker`` is set, the other is ""; so is one of ``topics`` (by name) and ``pattern``, for messages.
    ``assigned`` has the partitions of ``topics`` if only some are wanted.
    """

    path: str = ""
    broker: str = ""
    timeout: float = 30.0
    view: View = View.MESSAGES
    topics: tuple[str, ...] = ()
    pattern: str = ""
    starting: Offsets | None = None
    ending: Offsets | None = None
    starting_time: int | None = None
    ending_time: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_transactions: bool = False
    columns: tuple[str, ...] = ()
    assigned: Mapping[str, frozenset[int]] | None = None
    starting_times: Times | None = None
    ending_times: Times | None = None
    late_start: LateStart = "error"
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    max_delay: int = 15 * 60 * 1_000_000
    whole_transactions: bool = False
    group: str = ""
    as_kafka: bool = False
    clock_skew: int | None = None
    where: str = ""

    def wants(self, topic: str) -> bool:
        """Return whether the topic is subscribed to. A pattern never means the broker's own topics."""
        from journal.formats.filenames import RESERVED_PREFIX

        if self.pattern:
            return not topic.startswith(RESERVED_PREFIX) and bool(re.fullmatch(self.pattern, topic))
        return topic in self.topics

    def takes(self, topic: str, index: int) -> bool:
        """Return whether this partition of a subscribed topic is wanted."""
        return self.assigned is None or index in self.assigned.get(topic, ())

    @property
    def place(self) -> str:
        """Return the source, for people."""
        return self.broker or self.path


def refused(name: str, value: object, reason: str) -> InvalidSetting:
    """Return the error for an option's value."""
    return InvalidSetting(f"option {name} is {value!r}: {reason}; {NOTHING_READ}")


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options given with ``.option()``, names in any case; raises :class:`InvalidSetting`."""
    check_known(options, [*_READERS], NOTHING_READ)
    given = {name.lower(): value for name, value in options.items()}
    found: dict[str, Any] = {}
    for name, (field, read) in _READERS.items():
        if name.lower() in given:
            found[field] = read(name, given[name.lower()])
    _check_one_of(found, "subscribe", "subscribePattern", "assign")
    if "assigned" in found:
        found["topics"] = tuple(sorted(found["assigned"]))
    checked = ReadOptions(**found)
    _check_together(checked)
    _check_one_of(found, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    _check_one_of(found, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    return checked


def _check_one_of(found: Mapping[str, Any], *names: str) -> None:
    if len(given := [name for name in names if _READERS[name][0] in found]) > 1:
        raise InvalidSetting(f"{' and '.join(given)} contradict each other: give one of them; {NOTHING_READ}")


def check_known(given: Mapping[str, str], known: list[str], state: str) -> None:
    """Raise :class:`InvalidSetting` for the first unknown option, as it was written, with the nearest known one."""
    lower = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in lower:
            near = difflib.get_close_matches(name.lower(), lower, 1)
            meant = f"; did you mean {lower[near[0]]}?" if near else f"; known are {', '.join(known)}"
            raise InvalidSetting(f"there is no option {name!r}{meant} ({state})")


def _check_together(options: ReadOptions) -> None:
    if bool(options.path) == bool(options.broker):
        what = "both path and broker are given" if options.path else "neither path nor broker is given"
        raise InvalidSetting(
            f"{what}: give the data directory (.load(PATH)) or a broker's address (broker=tcp:HOST:PORT), one of them; "
            f"{NOTHING_READ}"
        )
    if options.view is View.MESSAGES and not (options.topics or options.pattern):
        raise InvalidSetting(
            "no topic is named: give subscribe (names with commas between), subscribePattern or assign; "
            f"{NOTHING_READ}"
        )
    if options.group and not options.broker:
        raise InvalidSetting(
            f"group is the name of a consumer group at a broker, and a data directory is read; {NOTHING_READ}. Leave "
            "it out, or give broker instead of the path"
        )
    if None not in (least := options.min_offsets, most := options.max_offsets) and least > most:  # type: ignore[operator]
        raise InvalidSetting(
            f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger is {most}: no batch can be both; {NOTHING_READ}"
        )


# -- one value each ------------------------------------------------------------------------------------


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise refused(name, value, "it is empty")
    return value.strip()


def _names(name: str, value: str) -> tuple[str, ...]:
    found = [part.strip() for part in value.split(",")]
    if "" in found or len(set(found)) < len(found):
        raise refused(name, value, "names are wanted, each once, with commas between")
    return tuple(found)


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(_text(name, value))
    except re.error as error:
        raise refused(name, value, f"it is no regular expression ({error})") from None
    return value.strip()


def _flag(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise refused(name, value, "true or false is wanted")
    return value.strip().lower() == "true"


def _count(name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,17}", value.strip()):
        raise refused(name, value, "a whole number from 1 on is wanted")
    return int(value)


def _size(name: str, value: str) -> int:
    found = _SIZE.fullmatch(value.strip().lower())
    if found is None or not int(found[1]):
        raise refused(name, value, "a number of bytes is wanted, such as 1048576, 512k, 64m or 1g")
    return int(found[1]) << _SHIFTS[found[2]]


def _view(name: str, value: str) -> View:
    try:
        return View(value.strip().lower())
    except ValueError:
        known = ", ".join(view.value for view in View)
        raise refused(name, value, f"{known} are known") from None


def _interval(name: str, value: str) -> int:
    try:
        return micros(value)
    except ValueError:
        wanted = "a time is wanted, such as 500ms, 30s, 5m, 2h or 1d (without a unit: seconds)"
        raise refused(name, value, wanted) from None


def _seconds(name: str, value: str) -> float:
    found = _interval(name, value) / 1e6
    if not 0 < found <= 3600:
        raise refused(name, value, "more than nothing and at most an hour is wanted")
    return found


def _time(name: str, value: str) -> int:
    text = value.strip()
    if re.fullmatch(r"\d{1,15}", text):
        return int(text) * 1000
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise refused(
            name,
            value,
            "milliseconds since 1970 UTC, or a time such as 2026-01-31T12:00:00+00:00, are wanted",
        )
    return round(time.timestamp() * 1e6)


def _starting(name: str, value: str) -> Offsets:
    return _offsets(name, value, ("earliest", "latest"))


def _ending(name: str, value: str) -> Offsets:
    return _offsets(name, value, ("latest",))


_SHAPE = 'an object such as {"orders": {"0": 23, "1": -1}} is wanted'


def _offsets(name: str, value: str, places: tuple[Place, ...]) -> Offsets:
    for place in places:
        if value.strip().lower() == place:
            return place
    given = _nested(name, value, f"{' or '.join(places)} or {_SHAPE}")
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in given.items():
        found[topic] = {}
        for index, offset in partitions.items():
            if not re.fullmatch(r"\d{1,9}", index) or type(offset) is not int or offset < EARLIEST:
                raise refused(
                    name, value, f"{topic} has {index!r}: {offset!r}; {_SHAPE}, -2 earliest, -1 latest"
                )
            if offset == EARLIEST and "earliest" not in places:
                raise refused(name, value, f"{topic}-{index} is -2 (earliest), where nothing can end")
            found[topic][int(index)] = offset
    return found


def _nested(name: str, value: str, wanted: str) -> dict[str, dict[str, Any]]:
    """Return JSON with an object for each topic."""
    try:
        given = json.loads(value)
    except ValueError:
        raise refused(name, value, wanted) from None
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise refused(name, value, wanted)
    return given


def _times(name: str, value: str) -> Times:
    shape = '{"orders": {"0": 1700000000000}}, in ms since 1970 UTC, is wanted for each partition'
    given = _nested(name, value, shape)
    for topic, partitions in given.items():
        for index, time in partitions.items():
            if not re.fullmatch(r"\d{1,9}", index) or type(time) is not int or not 0 <= time < 10**15:
                raise refused(name, value, f"{topic} has {index!r}: {time!r}; {shape}")
    return {
        topic: {int(index): time * 1000 for index, time in partitions.items()}
        for topic, partitions in given.items()
    }


def _late_start(name: str, value: str) -> LateStart:
    if (text := value.strip().lower()) == "error":
        return "error"
    if text == "latest":
        return "latest"
    raise refused(name, value, "error or latest is wanted")


def _assigned(name: str, value: str) -> dict[str, frozenset[int]]:
    shape = 'partitions such as {"orders": [0, 2]} are wanted'
    try:
        given = json.loads(value)
    except ValueError:
        raise refused(name, value, shape) from None
    if not isinstance(given, dict) or not given:
        raise refused(name, value, shape)
    for topic, indexes in given.items():
        if not isinstance(indexes, list) or not indexes:
            raise refused(name, value, f"{topic} has {indexes!r}; {shape}")
        if any(type(index) is not int or index < 0 for index in indexes) or len({*indexes}) < len(indexes):
            raise refused(name, value, f"{topic} has {indexes!r}; {shape}, each once")
    return {topic: frozenset(indexes) for topic, indexes in given.items()}


def _group(name: str, value: str) -> str:
    if (text := _text(name, value)).startswith(GROUPS):
        raise refused(name, value, f"names with {GROUPS} in front are those of the registers of writes")
    return text


def _as_kafka(name: str, value: str) -> bool:
    if value.strip().lower() not in ("kafka", "txbroker"):
        raise refused(name, value, "kafka or txbroker is wanted")
    return value.strip().lower() == "kafka"


_READERS: Final[dict[str, tuple[str, Any]]] = {
    "path": ("path", _text),
    "broker": ("broker", _text),
    "timeout": ("timeout", _seconds),
    "view": ("view", _view),
    "subscribe": ("topics", _names),
    "subscribePattern": ("pattern", _pattern),
    "assign": ("assigned", _assigned),
    "startingOffsets": ("starting", _starting),
    "endingOffsets": ("ending", _ending),
    "startingTimestamp": ("starting_time", _time),
    "endingTimestamp": ("ending_time", _time),
    "startingOffsetsByTimestamp": ("starting_times", _times),
    "startingOffsetsByTimestampStrategy": ("late_start", _late_start),
    "endingOffsetsByTimestamp": ("ending_times", _times),
    "minPartitions": ("min_partitions", _count),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "includeHeaders": ("include_headers", _flag),
    "includeTransactions": ("include_transactions", _flag),
    "columns": ("columns", _names),
    "columnsAs": ("as_kafka", _as_kafka),
    "maxOffsetsPerTrigger": ("max_offsets", _count),
    "maxBytesPerTrigger": ("max_bytes", _size),
    "minOffsetsPerTrigger": ("min_offsets", _count),
    "maxTriggerDelay": ("max_delay", _interval),
    "wholeTransactions": ("whole_transactions", _flag),
    "group": ("group", _group),
    "clockSkew": ("clock_skew", _interval),
    "where": ("where", _text),
}
