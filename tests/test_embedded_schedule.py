"""Tests of the embedded log's messages for later: given, fired, taken back, over restarts, and refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal.embedded import Log
from journal.errors import (
    InvalidName,
    InvalidSetting,
    MemoryExhausted,
    Misuse,
    UnknownPartition,
    WrongType,
    WrongValue,
)
from journal.formats import frame
from journal.scheduled_id import State
from journal.testing import ManualClock, MemoryFilesystem
from tests.support.builders import small_files

SECOND = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic=1_000_000)


@pytest.fixture
def log(clock: ManualClock) -> Iterator[Log]:
    with Log(MemoryFilesystem(), clock, small_files()) as found:
        found.create_topic("t", 2)
        yield found


def values(log: Log) -> list[bytes | None]:
    return [message.value for message in log.read("t")]


def test_what_is_given_for_later_is_appended_when_it_is_fired(log: Log, clock: ManualClock) -> None:
    log.schedule("t", b"two", after=timedelta(seconds=2))
    log.schedule("t", b"one", after=1.5, key=b"k", headers={"h": b"x"}, tags="new")
    at = datetime.fromtimestamp(clock.wall() / 1e6, UTC) + timedelta(seconds=3)
    log.schedule("t", b"three", at=at)
    assert (log.fire_due(), values(log)) == (0, [])
    clock.advance(2 * SECOND)
    assert (log.fire_due(), values(log)) == (2, [b"one", b"two"])
    [one, *_] = log.read("t")
    assert (one.key, one.header("h"), one.tags) == (b"k", b"x", ("new",))
    clock.advance(1 * SECOND)
    assert (log.fire_due(), values(log)) == (1, [b"one", b"two", b"three"])
    assert log.fire_due() == 0


def test_in_a_transaction_it_comes_only_if_that_is_committed(log: Log, clock: ManualClock) -> None:
    with log.transaction() as transaction:
        transaction.append("t", b"now")
        transaction.schedule("t", b"later", after=1)
    rolled_back = log.transaction()
    rolled_back.schedule("t", b"never", after=1)
    rolled_back.rollback()
    clock.advance(SECOND)
    log.fire_due()
    assert values(log) == [b"now", b"later"]


def test_it_is_taken_back_by_its_id_or_the_ids_text(log: Log, clock: ManualClock) -> None:
    one, two = log.schedule("t", b"one", after=1), log.schedule("t", b"two", after=1)
    assert log.scheduled(one).state is State.WAITS
    assert log.cancel(one).state is State.CANCELLED
    assert log.cancel(str(one)).state is State.CANCELLED
    clock.advance(SECOND)
    assert log.fire_due() == 1
    found = log.cancel(two)
    assert (found.state, found.place and found.place.offset) == (State.SENT, 0)


def test_it_outlives_a_restart(clock: ManualClock) -> None:
    filesystem = MemoryFilesystem()
    with Log(filesystem, clock, small_files()) as log:
        log.create_topic("t")
        kept = log.schedule("t", b"kept", after=3600)
    clock.advance(1800 * SECOND)
    with Log(filesystem, clock, small_files()) as log:
        assert log.fire_due() == 0
        clock.advance(1800 * SECOND)
        assert log.fire_due() == 1
        assert log.scheduled(kept).state is State.SENT


WRONG: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "both": (Misuse, {"after": 1, "at": datetime.now(UTC)}),
    "neither": (Misuse, {}),
    "negative": (WrongValue, {"after": -1}),
    "negative timedelta": (WrongValue, {"after": timedelta(seconds=-1)}),
    "eleven years": (WrongValue, {"after": timedelta(days=11 * 366)}),
    "a str": (WrongType, {"after": "1s"}),
    "True": (WrongType, {"after": True}),
    "nan": (WrongValue, {"after": float("nan")}),
    "no time zone": (WrongValue, {"at": datetime(2030, 1, 1)}),  # noqa: DTZ001  (which is what is wrong)
    "seconds": (WrongValue, {"at": 1_900_000_000}),
    "in twenty years": (InvalidSetting, {"at": datetime.now(UTC) + timedelta(days=20 * 366)}),
    "another partition": (UnknownPartition, {"after": 1, "partition": 7}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_time_or_place_is_refused(log: Log, case: str) -> None:
    error, given = WRONG[case]
    with pytest.raises(error):
        log.schedule("t", b"x", **given)
    assert log.fire_due() == 0


@pytest.mark.parametrize(
    "given", ["", "1", "9-0-00000000", "0-0-0000000g", "0-99999999999999-00000000", "x" * 1000]
)
def test_what_is_no_id_is_refused(log: Log, given: str) -> None:
    with pytest.raises(WrongValue, match="3-1042-9f8e7d6c"):
        log.cancel(given)


def test_the_schedule_itself_takes_no_messages(log: Log) -> None:
    log.schedule("t", b"x", after=1)
    for topic in ("txbroker.schedule", "txbroker.schedule_places"):
        with pytest.raises(InvalidName, match="own"):
            log.append(topic, b"forged")
        with pytest.raises(InvalidName, match="own"):
            log.schedule(topic, b"forged", after=1)
        with pytest.raises(InvalidName, match="own"), log.transaction() as transaction:
            transaction.append(topic, b"forged")
    assert log.topics == {"t": 2}


def test_little_memory_is_flushed_in_between(clock: ManualClock) -> None:
    filesystem, count = MemoryFilesystem(), 40
    with Log(filesystem, clock, small_files(pool_bytes=1 << 20)) as log:
        log.create_topic("t")
        for number in range(count):
            log.schedule("t", b"%02d" % number + bytes(60_000), after=1)
        clock.advance(SECOND)
        assert log.fire_due() == count
        assert [value and value[:2] for value in values(log)] == [b"%02d" % number for number in range(count)]


def test_memory_that_others_fill_is_flushed_first(clock: ManualClock) -> None:
    with Log(MemoryFilesystem(), clock, small_files(pool_bytes=1 << 20)) as log:
        log.create_topic("other")
        log.create_topic("t")
        log.schedule("t", bytes(60_000), after=1)
        clock.advance(SECOND)
        other, full = log.engine.catalog.topics["other"].partitions[0], frame.encode(bytes(8_000), 1)
        with pytest.raises(MemoryExhausted):
            [log.engine.append(other, full, 1) for _ in range(200)]
        assert log.fire_due() == 1
        assert values(log) == [bytes(60_000)]
