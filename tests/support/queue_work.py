"""A broker in which queues are used in every way, for tests of the tools that read its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crc32c import crc32c

from journal.formats.frame_check import check_run
from journal.records.queue_entries import ExchangeKind
from journal.testing import MemoryFilesystem
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import Scene, framed
from tests.support.builders import small_files
from tests.support.engine_room import contents
from txbroker.wire import messages

Sent = tuple[int, bytes]
"""Where frames are sent to: an exchange's address or a partition; and the frames."""


class QueueWork(Scene):
    """Queues a, b and c, all bound to ``fan``; a and b to ``topic``, which drops what finds none; partition ``plain``.

    With ``sliced`` everything that goes to several logs is applied in slices.
    """

    def __init__(self, archive: bool = True, sliced: bool = False) -> None:
        super().__init__(journal=small_files(outcome_archive=archive))
        self._serial = 0
        if sliced:
            self.room.engine.transactions.table.application.small_bytes = 1
        self.a, self.b, self.c = (self.queue(name) for name in "abc")
        [self.plain] = self.room.topic("orders")
        self.fan = self.exchange("fan", ExchangeKind.FANOUT)
        self.topic = self.exchange("topic", ExchangeKind.TOPIC, mandatory=False)
        for name in "abc":
            self.bind("fan", "", name)
        self.bind("topic", "x.#", "a")
        self.bind("topic", "#.y", "b")

    def round(self, name: bytes) -> None:
        """Publish, and commit transactions of each kind: some messages go to several queues, to one, or to none."""
        self.publish("", b"fanned " + name, b"too", to=self.fan)
        ways = (
            framed("x.y", b"both " + name)
            + framed("x", b"one")
            + framed("none", b"no")
            + framed("y", b"other")
        )
        self.peer.ask(messages.Send, self.topic, data=ways)
        self.publish("none", b"dropped", to=self.topic)
        self.publish("a", b"direct " + name)
        self.peer.send(self.plain, b"plain " + name)
        self.one_phase(*self._runs(b"at once " + name))
        self.one_phase((self.topic, framed("none", b"no")))
        self.added(*self._runs(b"added " + name))
        self.prepared("two " + name.decode(), *self._runs(b"prepared " + name), end=messages.Commit)
        self.prepared("back " + name.decode(), *self._runs(b"rolled back"), end=messages.Rollback)

    def _runs(self, name: bytes) -> list[Sent]:
        ways = framed("y", b"b alone") + framed("none", b"no") + framed("x.y", b"in both " + name)
        return [
            (self.fan, framed("", b"in all " + name)),
            (self.plain, framed("", b"beside it")),
            (self.topic, ways),
        ]

    def one_phase(self, *runs: Sent, **more: Any) -> messages.Committed:
        """Commit a transaction whose only request this is."""
        data = b"".join(frames for _, frames in runs)
        self._serial += 1
        lengths = [(to, len(frames)) for to, frames in runs]
        done = self.peer.ask(messages.Commit, 0, self._serial, runs=lengths, data=data, **more)
        assert isinstance(done, messages.Committed), done
        return done

    def added(self, *runs: Sent) -> messages.Committed:
        """Commit a transaction to which each of these was added before."""
        self._serial += 1
        totals = Totals(0, 0, 0)
        for to, frames in runs:
            self.peer.tell(messages.Add, self._serial, to, data=frames)
            count = totals.messages + check_run(frames)
            totals = Totals(count, totals.requests + 1, crc32c(frames, totals.checksum))
        done = self.peer.ask(messages.Commit, 0, self._serial, None, totals)
        assert isinstance(done, messages.Committed), done
        return done

    def prepared(self, xid: str, *runs: Sent, end: Any = None) -> None:
        """Prepare a transaction with all its messages; then ``end`` it, from another session."""
        data = b"".join(frames for _, frames in runs)
        self._serial += 1
        lengths = [(to, len(frames)) for to, frames in runs]
        name = Xid(1, xid.encode(), b"")
        done = self.peer.ask(messages.Prepare, self._serial, name, None, 0, lengths, data=data)
        assert isinstance(done, messages.Done), done
        if end is not None:
            self.other.ask(end, 0, 0, name)

    def in_doubt(self, xid: str = "doubt") -> None:
        """Leave a prepared transaction with messages for all queues, for two of them, and for none."""
        both = framed("none", b"no") + framed("x.y", b"doubtful for two")
        self.prepared(xid, (self.fan, framed("", b"doubtful for all")), (self.topic, both))

    def checkpoint(self) -> None:
        self.room.engine.housekeeping.checkpoint_inline()

    def files(self) -> MemoryFilesystem:
        """Return the directory as a kill leaves it."""
        self.room.engine.sync()
        return self.room.filesystem.kill_clone()


def everything(archive: bool = True, sliced: bool = False, flushed: bool = True) -> QueueWork:
    """Return a broker with three rounds of work, two checkpoints between them, acknowledgements, and one in doubt."""
    work = QueueWork(archive, sliced)
    work.round(b"1")
    work.taken(work.a)
    work.acknowledge(work.a, 0, 2)
    work.in_doubt()
    work.checkpoint()
    work.round(b"2")
    if flushed:
        work.room.flush()
    work.checkpoint()
    work.round(b"3")
    work.acknowledge(work.a, 1, 3)
    work.room.engine.sync()
    return work


def without_journal(work: QueueWork) -> QueueWork:
    """Have all of the journal that there is removed."""
    for _ in range(3):
        for _ in range(3):
            work.peer.send(work.plain, b"g" * 400_000)
        work.room.flush()
        work.checkpoint()
    return work


def on_disk(filesystem: MemoryFilesystem, path: Path) -> Path:
    """Write the files of a directory in memory to a directory of the disk."""
    for name, data in contents(filesystem).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path
