"""An engine on a real file system that is too small: ``python -m tests.engine.full_disk_process FOLDER SCENE``.

Run by `test_full_disk.py` under ``unshare --mount --map-root-user``, so that it may mount a tmpfs of a few MiB over the
folder, for itself alone: the mount goes with the process. Prints what it found as one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from journal.constants import KIB, MIB
from journal.embedded import Log
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull, JournalPoisoned, MemoryExhausted
from journal.formats import frame
from journal.records.record import LogStartMoved, TopicDeleted
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid

SIZE = 12 * MIB
SETTINGS = JournalSettings(
    pool_bytes=MIB, file_bytes=256 * KIB, low_water_bytes=2 * MIB, checkpoint_bytes=5 * MIB // 2
)
"""A start replays more than its memory holds, so that it must flush."""
VALUE = b"v" * (10 * KIB)
EARLY, LATE = Xid(1, b"early", b""), Xid(1, b"late", b"")


class Directory:
    """The small file system and the log on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mount("-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder))
        self.data = folder / "data"
        self.log = self.open()
        self.sent = 0

    def open(self, settings: JournalSettings = SETTINGS) -> Log:
        return Log(OSFilesystem(self.data), SystemClock(), settings)

    def free(self) -> int:
        numbers = os.statvfs(self.folder)
        return numbers.f_bavail * numbers.f_frsize

    def send(self) -> None:
        assert self.log.append("t", b"%d " % self.sent + VALUE) == self.sent
        self.sent += 1

    def send_until_refused(self) -> str:
        try:
            while True:
                self.send()
        except DiskFull as error:
            return str(error)

    def prepare(self, xid: Xid) -> None:
        transaction = self.log.transaction()
        transaction.append("t", b"prepared")
        transaction.prepare(xid)

    def fill(self) -> None:
        """Somebody else takes all that is left."""
        with open(self.folder / "foreign", "ab", buffering=0) as file:
            for step in (MIB, 4096, 1):
                try:
                    while True:
                        assert file.write(bytes(step)) == step
                except (OSError, AssertionError):
                    continue

    def clear(self) -> None:
        (self.folder / "foreign").unlink()

    def values(self, log: Log) -> int:
        """How many messages there are; all of them are those that were sent."""
        count = 0
        for message in log.read("t"):
            if message.value != b"prepared":
                assert message.value == b"%d " % count + VALUE
                count += 1
        return count


def make_room(log: Log, start: int) -> None:
    """Let retention take what lies below an offset, as far as whole segments go."""
    log.engine.accept(LogStartMoved(1, start, log.engine.now()))
    for _ in range(3):
        log.engine.mark()
        log.engine.housekeeping.checkpoint_inline()
    log.engine.housekeeping.run_inline()


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def low_water(directory: Directory) -> dict[str, Any]:
    """New work is refused while there is room to end what was begun; and comes in again once there is room."""
    log = directory.log
    for xid in (EARLY, LATE):
        directory.prepare(xid)
    log.create_topic("useless")
    refusal = directory.send_until_refused()
    free = directory.free()
    log.commit(EARLY)
    log.rollback(LATE)
    log.engine.accept(TopicDeleted("useless", log.engine.now()))
    read = directory.values(log)
    make_room(log, directory.sent - 5)
    return {
        "refusal": refusal,
        "free": free,
        "read": read,
        "sent": directory.sent,
        "offset after room was made": log.append("t", b"again"),
        "topics": sorted(log.topics),
        "prepared": len(log.prepared()),
    }


def fills_itself(directory: Directory) -> dict[str, Any]:
    """Nothing is kept free but one file, and as much is taken in between two looks as there is to take."""
    directory.log.close()
    settings = msgspec.structs.replace(SETTINGS, low_water_bytes=0, pool_bytes=4 * MIB)
    log = directory.log = directory.open(settings)
    engine, store = log.engine, log._store("t", 0)
    directory.prepare(EARLY)
    refused = 0
    while refused < 20:
        try:
            while not engine.full:
                value = b"%d " % directory.sent + VALUE
                engine.append(store, frame.encode(value, 1), 1)
                directory.sent += 1
            refused += 1
        except MemoryExhausted:
            engine.want_flush()
        engine.sync()
        engine.housekeeping.run_inline()
    log.commit(EARLY)
    engine.housekeeping.checkpoint_inline()
    return {
        "failure": engine.failed,
        "read": directory.values(log),
        "sent": directory.sent,
        "free": directory.free(),
    }


def start_on_a_full_disk(directory: Directory) -> dict[str, Any]:
    """Killed with work above the checkpoint; then not a byte is free, and the start succeeds all the same."""
    directory.prepare(EARLY)
    directory.send_until_refused()
    directory.log.engine.close()  # files and lock alone, as the process's death would
    directory.fill()
    free = directory.free()
    log = directory.open()
    report: Any = log.engine.report
    assert report.bytes > SETTINGS.pool_bytes
    found: dict[str, Any] = {
        "free": free,
        "notes": report.notes,
        "read": directory.values(log),
        "sent": directory.sent,
        "ballast": (directory.data / "ballast").exists(),
    }
    try:
        log.append("t", b"new work")
    except DiskFull as error:
        found["refusal"] = str(error)
    log.commit(EARLY)
    directory.clear()
    make_room(log, directory.sent - 5)
    found["offset after room was made"] = log.append("t", b"again")
    log.close()
    found["ballast again"] = (directory.data / "ballast").stat().st_size
    return found


def filled_at_work(directory: Directory) -> dict[str, Any]:
    """Somebody else fills the disk within a moment: the write fails, the engine stops, nothing acknowledged is lost."""
    for _ in range(20):
        directory.send()
    directory.log.engine.housekeeping.jobs = lambda _now: []  # type: ignore[attr-defined]  # no look at the space
    directory.fill()
    failure = ""
    try:
        while True:
            directory.send()
    except JournalPoisoned as error:
        failure = str(error)
    refused = ""
    try:
        directory.send()
    except JournalPoisoned as error:
        refused = str(error)
    directory.log.engine.close()
    log = directory.open()
    return {"failure": failure, "refused": refused, "read": directory.values(log), "sent": directory.sent}


def read_only(directory: Directory) -> dict[str, Any]:
    """The file system was mounted read-only before the start: it says so, and names what it could not open."""
    for _ in range(3):
        directory.send()
    directory.log.close()
    mount("-o", "remount,ro", str(directory.folder))
    failure: dict[str, Any] = {}
    try:
        directory.open()
    except OSError as error:
        failure = {"errno": error.errno, "file": error.filename}
    mount("-o", "remount,rw", str(directory.folder))
    return failure | {"read": directory.values(directory.open()), "sent": directory.sent}


def first_start(directory: Directory) -> dict[str, Any]:
    """Of two other directories there, with settings that the disk has just room for, and that it has not."""
    page = 64 * KIB
    log = other(directory, "enough", page)
    log.engine.housekeeping.run_inline()
    log.create_topic("t")
    offset = log.append("t", b"x")
    log.engine.close()
    found: dict[str, Any] = {
        "offset": offset,
        "ballast": (directory.folder / "enough/ballast").stat().st_size,
    }
    shutil.rmtree(directory.folder / "enough")
    try:
        other(directory, "too small", -page)
    except DiskFull as error:
        found["refusal"] = str(error)
    found["files"] = [path.name for path in (directory.folder / "too small").rglob("*") if path.is_file()]
    return found


def other(directory: Directory, name: str, more: int) -> Log:
    """A log with so many bytes more than it needs."""
    low_water = directory.free() - 4 * SETTINGS.file_bytes - more
    settings = msgspec.structs.replace(SETTINGS, low_water_bytes=low_water)
    return Log(OSFilesystem(directory.folder / name), SystemClock(), settings)


def small_for_data(directory: Directory) -> dict[str, Any]:
    """A directory with data, started with settings that the disk has no room for."""
    directory.prepare(EARLY)
    directory.send()
    directory.log.engine.close()
    low_water = directory.free()
    log = directory.open(msgspec.structs.replace(SETTINGS, low_water_bytes=low_water))
    report: Any = log.engine.report
    try:
        refusal = str(log.append("t", b"new work"))
    except DiskFull as error:
        refusal = str(error)
    log.commit(EARLY)
    return {
        "notes": report.notes,
        "refusal": refusal,
        "read": directory.values(log),
        "prepared": len(log.prepared()),
    }


SCENES = {
    scene.__name__: scene
    for scene in (
        low_water,
        fills_itself,
        start_on_a_full_disk,
        filled_at_work,
        read_only,
        first_start,
        small_for_data,
    )
}


def main() -> None:
    folder, scene = sys.argv[1:]
    directory = Directory(Path(folder))
    directory.log.create_topic("t", segment_bytes=MIB)
    print(json.dumps(SCENES[scene](directory)))


if __name__ == "__main__":
    main()
