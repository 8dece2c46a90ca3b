"""NATS JetStream, a server that knows ``sync_interval: always``; it is built from Go's modules where none is installed.

Debian 12 has 2.9, which forces its files every two minutes and has no setting for that; 2.10 is the first with one.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.contender import Contender, Measures, Run
from benchmarks.peers.jars import GATHERED
from benchmarks.peers.programs import JAVA_WARM_UP, run_java
from benchmarks.peers.python_clients import run_python
from benchmarks.peers.server import PeerMissing, PeerServer

MODULE = "github.com/nats-io/nats-server/v2"
VERSION = "v2.15.2"
WINDOW = 512
"""The messages of a batch. Each is forced by itself, and answers wait for all that were read together, so more would
not help.
"""


class NatsServer(PeerServer):
    """A NATS server. ``settings`` are of the block ``jetstream`` of nats-server.conf."""

    name = "NATS"
    ready = "Server is ready"
    defaults: ClassVar[Mapping[str, str]] = {"sync_interval": "always"}

    def version(self) -> str:
        said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
        return "NATS " + said.rpartition("v")[2].strip()

    def prepare(self) -> None:
        settings = {"store_dir": f'"{self.folder}/data"', **self.settings}
        (self.folder / "nats-server.conf").write_text(configuration(self.port, settings))

    def command(self) -> Sequence[str]:
        return [program(), "--config", str(self.folder / "nats-server.conf")]


def configuration(port: int, jetstream: Mapping[str, str]) -> str:
    """Return the text of nats-server.conf."""
    inner = "".join(f"  {name}: {value}\n" for name, value in jetstream.items())
    return f"listen: 127.0.0.1:{port}\njetstream {{\n{inner}}}\n"


@functools.cache
def program() -> str:
    """Return a server that can force before it answers: the installed one if it can, else one that is built once."""
    installed = shutil.which("nats-server")
    if installed is not None and _can_force(installed):
        return installed
    built = GATHERED / f"nats-server-{VERSION}" / "nats-server"
    if not built.is_file():
        _build(built)
    return str(built)


def _can_force(server: str) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(configuration(4222, {"sync_interval": "always"}))
        file.flush()
        return not subprocess.run(
            [server, "--config", file.name, "-t"], capture_output=True, check=False
        ).returncode


def _build(target: Path) -> None:
    missing = "no nats-server here knows `sync_interval: always` (2.10 is the first; Debian 12 has 2.9)"
    if shutil.which("go") is None:
        raise PeerMissing(f"{missing}, and there is no Go to build {VERSION} with")
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(target.parent), "CGO_ENABLED": "0"}
    command = ["go", "install", f"{MODULE}@{VERSION}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{missing}, and {' '.join(command)} failed:\n{done.stderr[-1000:]}")


class Nats(Contender):
    """A file stream of one replica; loaded by jnats, and by nats-py."""

    name = "NATS JetStream"
    peer = "nats"
    warm_up = JAVA_WARM_UP
    durability = "stream forced before the answer (sync_interval: always)"

    def __init__(self) -> None:
        self._server = NatsServer(Path())
        self._streams = 0

    def version(self) -> str:
        return self._server.version()

    def open(self, folder: Path) -> AbstractContextManager[object]:
        self._server = NatsServer(folder)
        return self._server

    def runs(self) -> Mapping[str, Run]:
        return {
            "singles": functools.partial(self._run, "singles"),
            "depth-1": functools.partial(self._run, "depth-1"),
            "python": lambda warm_up, seconds: run_python("nats", str(self._server.port), warm_up, seconds),
        }

    def processes(self) -> list[int]:
        return self._server.processes()

    def settings(self) -> list[str]:
        return (self._server.folder / "nats-server.conf").read_text().splitlines()

    def clients(self) -> list[str]:
        return [
            f"singles: jnats, publishAsync on one connection, at most {WINDOW} unanswered (NatsLoad.java)",
            "depth 1: jnats, publish, one at a time",
            "Python: nats-py, publish_async, at most 4000 unanswered; pull consumer without acknowledgements",
        ]

    def _run(self, load: str, warm_up: float, seconds: float) -> Measures:
        self._streams += 1
        arguments = (f"nats://127.0.0.1:{self._server.port}", f"stream{self._streams}", load, WINDOW)
        return {load: run_java("nats", "NatsLoad", arguments, warm_up, seconds)}
