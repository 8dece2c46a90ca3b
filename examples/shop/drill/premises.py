"""The premises of the shop: PostgreSQL, the broker, the web server and Celery's worker, to be started and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from demo.database_process import DatabaseFailed
from demo.premises import ShopPremises
from demo.program import ProgramFailed
from examples.shop.drill.services import Service
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess, free_port

READY_WITHIN = 60.0
"""Seconds for the web server to answer once it has been started."""

SETTINGS = ("checkpoint_interval=2s", "checkpoint_bytes=16MiB", "file_bytes=18MiB")
"""Of the broker: under these much happens quickly."""

FAILURES = (BrokerFailed, DatabaseFailed, ProgramFailed)


class Premises(ShopPremises):
    """The shop, or the naive one. A context manager.

    With ``held``, a folder, processes of the shop can be held at their moments.
    """

    def __init__(self, folder: Path, naive: bool = False, held: Path | None = None) -> None:
        amqp, self.web_port = free_port(), free_port()
        listen = ["--listen-amqp", f"tcp:{amqp}:interface=127.0.0.1"]
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        broker = BrokerProcess(
            folder / "broker", folder / "broker.log", [*listen, *settings], own_session=True
        )
        super().__init__(folder, "txbroker-django-", broker)
        package = "examples.shop.naive" if naive else "examples.shop"
        self.amqp_url = f"amqp://guest:guest@127.0.0.1:{amqp}//"
        self.environment = {
            "DJANGO_SETTINGS_MODULE": f"{package}.settings",
            "SHOP_DATABASE": self.database_url,
            "SHOP_BROKER": self.broker.address,
            "SHOP_AMQP": self.amqp_url,
        }
        python = [sys.executable, "-m"]
        run = python if held is None else [*python, "examples.shop.drill.mortal", os.fspath(held)]
        web = ["--bind", f"127.0.0.1:{self.web_port}", "--workers", "2", "--threads", "2"]
        self.web = Service(
            folder,
            "web",
            [*run, "gunicorn", "examples.shop.wsgi", *web, "--no-control-socket"],
            self.environment,
        )
        self.celery = Service(
            folder,
            "celery",
            [*run, "celery", "-A", package, "worker", "--concurrency", "2"],
            self.environment,
        )

    @property
    def programs(self) -> list[Service]:
        """Return the programs of the shop."""
        return [self.web, self.celery]

    def begin(self) -> None:
        """Migrate the database, start the programs, and wait for the web server."""
        self.run("-m", "examples.shop.manage", "migrate", "--verbosity", "0")
        for program in self.programs:
            program.start()
        wait_until(self.answers, READY_WITHIN, self.check, "the web server does not answer")

    def run(self, *arguments: str) -> str:
        """Run Python with these arguments in the shop's environment; return what it prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(f"{' '.join(arguments)} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    def page(self) -> str:
        """Return the page of the shop; raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/", timeout=10) as answer:
            return str(answer.read().decode())

    def answers(self) -> bool:
        """Return whether the web server shows the page."""
        try:
            return "<h1>" in self.page()
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, over a connection of its own."""
        with psycopg.connect(self.database_url) as database:
            return database.execute(statement.encode()).fetchall()


def wait_until(
    condition: Callable[[], bool], within: float, check: Callable[[], None], otherwise: str
) -> None:
    """Wait until a condition holds. Raises ProgramFailed if it does not within so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise ProgramFailed(f"{otherwise} after {within:.0f} s")
        time.sleep(0.05)
