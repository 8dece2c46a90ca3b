"""The premises of the shop: PostgreSQL, the broker and the shop's programs, which can be started and killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.database_process import DatabaseFailed
from demo.postgresql import PostgresqlServer
from examples.orders.shop import TOPICS, open_shop
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess

STOP_WITHIN = 60.0
"""Seconds for a program to end after SIGTERM."""

BUSY_WITHIN = 90.0
"""Seconds for the shop to be at work again once all its parties are up."""

FAILURES = (BrokerFailed, DatabaseFailed)


class ProgramFailed(Exception):
    """A program of the shop ended by itself; the message has the end of what it said."""


class Program:
    """One program of the shop over its whole life. All its processes write to ``<name>.out`` and ``<name>.err``."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and wait for nothing."""
        with self.out.open("ab") as out, self._err.open("ab") as err:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and wait for the orderly end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ProgramFailed(self._said("did not stop on SIGTERM")) from None

    def check(self) -> None:
        """Raise :class:`ProgramFailed` if the program has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ProgramFailed(self._said(f"ended by itself with {self._process.returncode}"))

    def lines(self) -> list[str]:
        """Return the lines that it wrote, except for one that a kill has cut off."""
        text = self.out.read_text() if self.out.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def _said(self, what: str) -> str:
        lines = self._err.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.name} {what}. The end of what it said:", *lines[-20:]])


class Premises:
    """A shop with so many producers, a consumer for each half of the partitions, and a resolver. A context manager.

    Logs and the broker's data are in ``folder``. PostgreSQL's are in a folder of its own, which it has to own: it is
    removed at the end, unless ``keep`` is set before.
    """

    def __init__(self, folder: Path, producers: int, rate: float) -> None:
        self.folder = folder
        self.keep = False
        self.postgresql = PostgresqlServer(Path(tempfile.mkdtemp(prefix="txbroker-shop-", dir="/tmp")))
        self.database_url = self.postgresql.url("shop")
        self.broker = BrokerProcess(folder / "broker", folder / "broker.log")
        module = [sys.executable, "-m"]
        place = [self.database_url, self.broker.address]
        halves = ["0", "1"], [str(number) for number in range(2, TOPICS["orders"])]
        self.producers = [
            Program(folder, f"producer-{number}", [*module, "examples.orders.producer", *place, str(rate)])
            for number in range(producers)
        ]
        self.consumers = [
            Program(folder, f"consumer-{number}", [*module, "examples.orders.consumer", *place, *partitions])
            for number, partitions in enumerate(halves)
        ]
        txbroker = os.fspath(Path(sys.executable).with_name("txbroker"))
        watch = ["resolve", "--database", self.database_url, "--watch", "--interval", "1s"]
        self.resolver = Program(folder, "resolver", [txbroker, "--broker", self.broker.address, *watch])

    @property
    def programs(self) -> list[Program]:
        """Return all programs of the shop."""
        return [*self.producers, *self.consumers, self.resolver]

    def open(self) -> None:
        """Start everything."""
        self.postgresql.start()
        with self.postgresql.connect(autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        self.broker.start()
        open_shop(self.database_url, self.broker.address)
        for program in self.programs:
            program.start()

    def check(self) -> None:
        """Raise :class:`ProgramFailed` if a program of the shop has ended by itself."""
        for program in self.programs:
            program.check()

    def wait_for_business(self) -> None:
        """Return once each producer has placed another order and another invoice has been written."""
        before = self._business()
        deadline = time.monotonic() + BUSY_WITHIN
        while any(now <= then for now, then in zip(self._business(), before, strict=True)):
            self.check()
            if time.monotonic() > deadline:
                raise ProgramFailed(
                    f"not every program got on within {BUSY_WITHIN:.0f} s; producers and consumers had said {before} "
                    f"bytes of what they did, and now {self._business()}"
                )
            time.sleep(0.05)

    def _business(self) -> list[int]:
        """Return how many bytes each producer has reported, and all consumers together."""
        said = [size_of(program.out) for program in (*self.producers, *self.consumers)]
        return [*said[: len(self.producers)], sum(said[len(self.producers) :])]

    def close(self) -> None:
        """Stop all processes, whatever happens."""
        for program in self.programs:
            program.kill()
        self.broker.kill_for_good()
        if self.keep:
            self.postgresql.kill()
        else:
            self.postgresql.remove()

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):  # Ctrl-C is no failure
            self.keep = True
            error.add_note(f"kept: {self.folder} and PostgreSQL's {self.postgresql.folder}")
        self.close()


def size_of(file: Path) -> int:
    """Return the size of a file that need not exist."""
    return file.stat().st_size if file.exists() else 0


def new_folder(parent: Path) -> Path:
    """Make a new folder below ``build`` for one run."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=parent, prefix="run-")).resolve()


def remove(folder: Path) -> None:
    """Remove the folder of a run that went well."""
    shutil.rmtree(folder)
