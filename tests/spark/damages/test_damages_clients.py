"""Test changes, with valid checksums, of producers' sequences and groups' positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.engine.engine import Engine
from journal.folds.table import client_folds
from journal.formats import filenames, frame
from journal.random_id import new_id
from journal.records.group_entries import Ending, GroupSettings, PartitionOffset, RetryRules
from journal.records.record import (
    GroupAltered,
    GroupDeleted,
    Messages,
    OffsetsCommitted,
    PartitionsClaimed,
    ProducerOpened,
    ProducersExpired,
    StreamClaimed,
    StreamReleased,
    TopicDeleted,
    TransactionOffsetsAdded,
)
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid
from spark.audit.claims.facts import What
from tests.spark.audit.audited import SETTINGS, audited, copied
from tests.spark.damages.damages import Damages, Named
from tests.spark.damages.forger import newest, refold, rerecord

damage = Damages()

OWNER = b"sixteen bytes of"


class Clients:
    """A broker's engine, whose folds know producers and groups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine: Engine = recover(OSFilesystem(path), SystemClock(), SETTINGS, folds=client_folds())
        self._serial = 0

    def topic(self, name: str, partitions: int) -> None:
        engine = self.engine
        engine.accept(
            engine.catalog.judge_creation(name, partitions, TopicSettings(), engine.now(), new_id())
        )
        engine.sync()

    def send(self, topic: str, index: int, producer: int, sequence: int, count: int, epoch: int = 0) -> None:
        store = self.engine.catalog.topic(topic).partitions[index]
        data = b"".join(frame.encode(b"v%d" % n, 1_700_000_000_000_000) for n in range(count))
        self.engine.append(store, data, count, producer, epoch, sequence)

    def accept(self, made: Callable[[int], Any]) -> None:
        self.engine.accept(made(self.engine.now()))

    def moving(self, group: str, partition: int, offset: int, end: str) -> None:
        """A transaction that moves a group."""
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 9, self._serial)
        place = [PartitionOffset(partition, offset, 0, "moved")]
        self.accept(
            lambda at: TransactionOffsetsAdded(
                *number, group, place, at, 0, Xid(1, b"m%d" % self._serial, b""), None, b"i" * 16
            )
        )
        totals = Totals(0, 1, 0)
        if end == "prepare":
            self.engine.transactions.prepare(number, Xid(1, b"m%d" % self._serial, b""), totals)
        elif end == "commit":
            self.engine.transactions.commit(number, Cause.CLIENT, totals)
        elif end == "rollback":
            self.engine.transactions.rollback(number, Cause.CLIENT)
        self.engine.sync()

    def checkpoint(self) -> None:
        self.engine.sync()
        self.engine.housekeeping.checkpoint_inline()

    def kill(self) -> Path:
        self.engine.sync()
        self.engine.close()
        return self.path


def filled(path: Path) -> Path:
    made = Clients(path)
    made.topic("gone", 2)
    made.topic("orders", 3)
    first = made.engine.catalog.topic("orders").partitions[0].number
    for number, name in enumerate(("", "named", "again", "silent"), 1):
        made.accept(lambda at, number=number, name=name: ProducerOpened(number, 0, name, at, OWNER))
    made.send("gone", 1, 1, 0, 2)
    for turn in range(4):
        made.send("orders", 0, 1, turn * 3, 3)
        made.send("orders", 0, 2, turn * 2, 2)
        made.send("orders", 1, 2, turn, 1)
    made.send("orders", 2, 3, 0, 5)
    made.accept(lambda at: ProducerOpened(3, 1, "again", at, OWNER))
    made.send("orders", 2, 3, 0, 2, epoch=1)
    made.accept(lambda at: ProducersExpired([4], at))
    places = [
        PartitionOffset(first, 3, 0, "mine"),
        PartitionOffset(first + 1, 1),
        PartitionOffset(first - 1, 1),
    ]
    made.accept(lambda at: OffsetsCommitted("group", places, at, b"g" * 16))
    made.accept(lambda at: OffsetsCommitted("left", places[:1], at, b"l" * 16))
    made.accept(lambda at: PartitionsClaimed("group", "member", [(first, 1), (first + 2, 2)], at))
    made.accept(lambda at: GroupAltered("group", GroupSettings(RetryRules(3, 5, 80, Ending.DROP)), at))
    for stream in (b"s" * 16, b"t" * 16):
        made.accept(lambda at, stream=stream: StreamClaimed(stream, "table", 4, bytes(16), "me", at))
    made.accept(lambda at: StreamReleased(b"t" * 16, 5, at))
    made.accept(lambda at: GroupDeleted("left", at))
    made.accept(lambda at: TopicDeleted("gone", at))
    made.moving("group", first + 1, 4, "commit")
    made.moving("group", first + 1, 9, "rollback")
    made.moving("group", first + 1, 9, "")
    made.moving("held", first, 7, "prepare")
    made.checkpoint()
    made.send("orders", 0, 1, 12, 1)
    made.kill()
    again = Clients(path)  # what was active is rolled back
    again.send("orders", 0, 1, 13, 1)
    again.accept(lambda at: OffsetsCommitted("group", [PartitionOffset(first, 5)], at))
    again.checkpoint()
    again.send("orders", 0, 1, 14, 1)
    again.accept(lambda at: OffsetsCommitted("group", [PartitionOffset(first, 6)], at))
    return again.kill()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("sound") / "data")


def told(path: Path):
    return [fact for fact in audited(path) if fact.what in (What.VIOLATION, What.NOTICE)]


# -- in checkpoints --------------------------------------------------------------------------------------------


def _of(path: Path, says: str) -> Named:
    return {"kind": "checkpoint", "path": filenames.checkpoint_file(newest(path).header.lsn), "says": says}


def _changed(fold: str, change: Callable[[list[Any]], None], says: str) -> Callable[[Path], Named]:
    """All checkpoints say it."""

    def damaged(path: Path) -> Named:
        def changed(rows: list[Any]) -> list[Any]:
            change(rows)
            return rows

        refold(path, fold, changed)
        return _of(path, says)

    return damaged


def _set(*places: int | str, to: object) -> Callable[[list[Any]], None]:
    def change(rows: list[Any]) -> None:
        *way, last = places
        found: Any = rows
        for place in way:
            found = found[place]
        found[last] = to

    return change


def _producer(name: str, *places: int, to: object, says: str) -> None:
    damage(f"a checkpoint has another {name}")(_changed("producers", _set(*places, to=to), says))


_producer("number for the next producer", 0, 0, to=99, says="the number of the next producer is 99")
_producer(
    "epoch of a producer", 1, 1, to=5, says="producer 1 (epoch, name, last used, owner, principal) is (5,"
)
_producer("name of a producer", 2, 2, to="other", says="'other'")
_producer("time of a producer's last use", 1, 3, to=1, says="by the journal (0, ''")
_producer("owner of a producer", 1, 5, to=bytes(16), says=f"'{bytes(16).hex()}', ''), by the journal")
_producer("next sequence of a producer", 2, 4, 0, 1, to=7, says="what producer 2 sent to partition number")
_producer("end of what a producer sent", 2, 4, 0, 2, to=77, says="what producer 2 sent to partition number")
_producer(
    "beginning of a producer's run", 2, 4, 0, 3, 1, to=1, says="what producer 2 sent to partition number"
)
_producer("offset of a producer's run", 2, 4, 0, 4, 1, to=4, says="what producer 2 sent to partition number")
damage("a checkpoint lacks a producer")(
    _changed(
        "producers",
        lambda rows: rows.pop(2),
        "producer 2 (epoch, name, last used, owner, principal) is not there, by the journal (0,",
    )
)
damage("a checkpoint has a producer more")(
    _changed(
        "producers",
        lambda rows: rows.append([4, 0, "silent", 5, [], OWNER]),
        "producer 4 (epoch, name, last used, owner, principal) is (0, 'silent'",
    )
)
damage("a checkpoint lacks what a producer sent to a partition")(
    _changed("producers", lambda rows: rows[2][4].pop(), "what producer 2 sent to partition number")
)


def _group(name: str, change: Callable[[list[Any]], None], says: str) -> None:
    damage(f"a checkpoint has another {name}")(_changed("groups", change, says))


_group("position of a group", _set(1, 2, 0, 1, to=1), "of group 'group' in partition number")
_group("word beside a position", _set(1, 2, 0, 2, to="yours"), "is (5, 'yours')")
_group("name of a group", _set(1, 0, to="others"), "of group 'others'")
_group("id of a group", _set(1, 1, to=b"another"), "the id of group 'group' is 616e6f74686572")
_group("member with a claim", _set(1, 3, 0, 2, to="thief"), "'thief'")
_group("generation of a claim", _set(1, 3, 0, 1, to=7), "claim (generation, member, kind) of group 'group'")
_group("last generation", _set(0, 0, to=7), "the last generation is 7")
_group("number of attempts of a group", _set(1, 5, 0, 0, to=7), "retry=RetryRules(attempts=7, pause=5")
_group("pause between attempts of a group", _set(1, 5, 0, 1, to=7), "retry=RetryRules(attempts=3, pause=7")
_group("longest pause between attempts of a group", _set(1, 5, 0, 2, to=7), "pause=5, longest=7")
_group(
    "ending of the attempts of a group",
    _set(1, 5, 0, 3, to=0),
    "ending=<Ending.DEAD_LETTER: 0>, target=''), expiry=None, tags=[]), by the journal",
)
_group("offset in a prepared transaction", _set(-1, 3, 0, 3, 0, 1, to=1), "what transaction")
_group("id for a group in a prepared transaction", _set(-1, 3, 0, 2, to=b"x"), "what transaction")
_group("time after which a group expires", _set(1, 5, 1, to=7), "expiry=7, tags=[]), by the journal")
_group(
    "time when a group was used last",
    _set(1, 6, to=7),
    "when group 'group' was used last is 7, by the journal",
)
damage("a checkpoint lacks the retry rules of a group")(
    _changed("groups", _set(1, 5, 0, to=None), "the settings of group 'group' is GroupSettings(retry=None")
)
damage("a checkpoint has another id of a topic")(
    _changed("catalog", _set(-1, 4, to=b"another"), "it has topic")
)
damage("a checkpoint has other ranges of partition numbers for a topic")(
    _changed("catalog", lambda rows: rows[-1][2].append([99, 1]), "it has topic")
)
_group("state of a transaction with offsets", _set(-1, 2, to=False), "what transaction")
damage("a checkpoint lacks a group")(
    _changed("groups", lambda rows: (rows.pop(1), _set(0, 2, to=0)(rows)), "of group 'group'")
)


# -- in the journal --------------------------------------------------------------------------------------------


def _record(name: str, kind: type, says: str, change: Callable[[Any], Any]) -> None:
    @damage(name)
    def _(path):
        rerecord(path, lambda each: isinstance(each, kind), change)
        return {"kind": "checkpoint", "says": says}


def _moved(old: OffsetsCommitted) -> OffsetsCommitted:
    return replace(old, offsets=[replace(old.offsets[0], offset=2), *old.offsets[1:]], group="else")


_record("a group's positions were another's", OffsetsCommitted, "of group 'else'", _moved)
_record(
    "a group was made with another id",
    OffsetsCommitted,
    "by the journal 78",
    lambda old: replace(old, id=b"x"),
)
_record("a claim was another's", PartitionsClaimed, "'thief'", lambda old: replace(old, member="thief"))
_record("a stream was claimed by another", StreamClaimed, "'thief'", lambda old: replace(old, client="thief"))
_record(
    "a release told another generation",
    StreamReleased,
    "by the journal 9",
    lambda old: replace(old, generation=9),
)
_record(
    "a group got no retry rules",
    GroupAltered,
    "by the journal GroupSettings(retry=None",
    lambda old: replace(old, settings=GroupSettings()),
)
_record(
    "a producer was opened under another name",
    ProducerOpened,
    "'other'",
    lambda old: replace(old, name="other"),
)
_record(
    "a transaction moves a group elsewhere", TransactionOffsetsAdded, "of group 'group'",
    lambda old: replace(old, offsets=[replace(old.offsets[0], offset=2)]),
)  # fmt: skip


@damage("a send is of another sequence")
def _(path):
    wanted = lambda each: isinstance(each, Messages) and each.producer_id == 2 and each.sequence == 2  # noqa: E731
    entry = rerecord(path, wanted, lambda old: replace(old, sequence=4))
    says = "as its message 4, by the records before 2 is the next"
    return {"kind": "journal", "path": entry.path, "position": entry.position, "says": says}


@damage("a send is of another producer")
def _(path):
    wanted = lambda each: isinstance(each, Messages) and each.producer_id == 2  # noqa: E731
    entry = rerecord(path, wanted, lambda old: replace(old, producer_id=9))
    return {"kind": "journal", "path": entry.path, "position": entry.position, "says": "never been opened"}


@damage("the last send, behind the newest checkpoint, is of another sequence")
def _(path):
    wanted = lambda each: isinstance(each, Messages) and each.sequence == 14  # noqa: E731
    entry = rerecord(path, wanted, lambda old: replace(old, sequence=15))
    return {"kind": "journal", "path": entry.path, "position": entry.position, "says": "14 is the next"}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


def test_the_directory_is_sound_before_and_after_another_start(sound, tmp_path):
    assert told(sound) == []
    path = copied(sound, tmp_path / "data")
    again = Clients(path)
    again.checkpoint()
    again.kill()
    assert told(path) == []
