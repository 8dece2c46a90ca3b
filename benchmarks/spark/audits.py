"""The benchmark of audits: how long they take, and whether their memory is bounded however large the log is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

import journal
from benchmarks.harness.frames import BODY, TIMESTAMP
from benchmarks.spark.watch import Watch
from journal.engine.settings import JournalSettings
from journal.formats import frame
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.xid import Xid

DRIVER_MEMORY: Final = "512m"
"""The memory of the audit's JVM: less than the log."""

MESSAGES: Final = 10_000
"""The messages of each transaction."""
ADD: Final = 500
"""Messages in one request of a transaction: 64 KiB, as the client sends them."""
PARTITIONS: Final = 4
SESSION: Final = 1 << 32 | 9


class Ledger(NamedTuple):
    """A ledger: a number of transactions of :data:`MESSAGES` messages of 100 bytes.

    ``batched``: as the client sends them, else every message is a frame of its own, which is the most that an audit
    can have to look at.
    """

    transactions: int
    batched: bool
    repeated: bool = False
    """Whether it is audited as often as everything else is measured; otherwise once."""

    @property
    def title(self) -> str:
        how = "in batches" if self.batched else "as single frames"
        return f"{self.transactions * MESSAGES:,} messages {how}, {self.transactions:,} transactions"


class Audited(NamedTuple):
    """One audit: seconds since Spark's start, and of the whole command; the greatest memory of all its processes; their
    processor time; bytes of the logs.
    """

    seconds: float
    whole: float
    memory: int
    processor: float
    log: int


def build(ledger: Ledger, path: Path) -> int:
    """Build a data directory with these transactions, in two phases each; return the bytes of its logs."""
    shutil.rmtree(path, ignore_errors=True)
    settings = JournalSettings(outcome_archive=True, low_water_bytes=0)
    frames = _frames(ledger.batched)
    requests = MESSAGES // ADD
    totals = Totals(MESSAGES, requests, crc32c(frames * requests))
    with journal.open(path, settings) as log:
        log.create_topic("audited", PARTITIONS)
        engine = log.engine
        numbers = [store.number for store in engine.catalog.topic("audited").partitions]
        for serial in range(1, ledger.transactions + 1):
            number, xid = TransactionNumber(SESSION, serial), Xid(1, b"%d" % serial, b"")
            for turn in range(requests):
                engine.transactions.add(number, numbers[(serial + turn) % PARTITIONS], frames, ADD, xid)
            engine.transactions.prepare(number, xid, totals)
            engine.transactions.commit(number, Cause.CLIENT)
            engine.sync()
            engine.housekeeping.run_inline()
        engine.housekeeping.checkpoint_inline()
    return sum(file.stat().st_size for file in (path / "partitions").rglob("*.log"))


def _frames(batched: bool) -> bytes:
    if not batched:
        return b"".join(frame.encode(BODY, TIMESTAMP + number) for number in range(ADD))
    inner = b"".join(frame.encode_inner(number, BODY, TIMESTAMP + number) for number in range(ADD))
    return frame.encode_wrapper(inner, ADD, TIMESTAMP)


def audit(data: Path, log: int, report: Path) -> Audited:
    """Run ``python -m spark.audit`` as a user would, watched from outside; raises AssertionError if it finds a
    fault.
    """
    shutil.rmtree(report, ignore_errors=True)
    command = [sys.executable, "-m", "spark.audit", "--data", os.fspath(data), "--out", os.fspath(report)]
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--driver-memory {DRIVER_MEMORY} pyspark-shell"}
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        with Watch(process.pid) as watch:
            said, _ = process.communicate()
        whole = time.monotonic() - began
        if process.returncode:
            raise AssertionError(f"the audit of {data} ended with {process.returncode}:\n{said[-4000:]}")
    seconds = json.loads((report / "summary.json").read_text())["seconds"]
    return Audited(seconds, whole, watch.memory, watch.processor, log)


def audit_all(ledgers: list[Ledger], folder: Path, repeat: int) -> dict[Ledger, list[Audited]]:
    """Build each ledger once, and audit it once or ``repeat`` times."""
    found: dict[Ledger, list[Audited]] = {}
    for ledger in ledgers:
        log = build(ledger, folder / "audited")
        found[ledger] = [
            audit(folder / "audited", log, folder / "report") for _ in range(repeat if ledger.repeated else 1)
        ]
        shutil.rmtree(folder / "audited")
    return found
