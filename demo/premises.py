"""The premises of a shop: PostgreSQL, a broker and the shop's programs, which can be started and killed."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.postgresql import PostgresqlServer
from demo.program import Program
from txbroker.drill.broker.broker_process import BrokerProcess


class ShopPremises(ABC):
    """What the shops have in common. A context manager.

    Logs and the broker's data are in ``folder``. PostgreSQL's are in a folder of its own, which it has to own and whose
    name begins with ``database``: it is removed at the end, unless ``keep`` is set before.
    """

    def __init__(self, folder: Path, database: str, broker: BrokerProcess) -> None:
        self.folder = folder
        self.keep = False
        self.postgresql = PostgresqlServer(Path(tempfile.mkdtemp(prefix=database, dir="/tmp")))
        self.database_url = self.postgresql.url("shop")
        self.broker = broker

    @property
    @abstractmethod
    def programs(self) -> Sequence[Program]:
        """Return all programs of the shop."""

    @abstractmethod
    def begin(self) -> None:
        """Make what the shop needs in its database and at the broker, which run, and start its programs."""

    def open(self) -> None:
        """Start everything."""
        self.postgresql.start()
        with self.postgresql.connect(autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        self.broker.start()
        self.begin()

    def check(self) -> None:
        """Raise :class:`ProgramFailed <demo.program.ProgramFailed>` if a program of the shop has ended by itself."""
        for program in self.programs:
            program.check()

    def close(self) -> None:
        """Stop all processes, whatever happens."""
        for program in self.programs:
            program.kill_all()
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


def new_folder(parent: Path) -> Path:
    """Make a new folder below ``build`` for one run."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=parent, prefix="run-")).resolve()


def remove(folder: Path) -> None:
    """Remove the folder of a run that went well."""
    shutil.rmtree(folder)
