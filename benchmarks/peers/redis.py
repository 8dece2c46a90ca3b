"""Redis 7 from Debian's packages: streams, with an append-only file that is forced before every answer."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import redis

from benchmarks.peers.contender import Contender, Measure, Run
from benchmarks.peers.python_clients import run_python
from benchmarks.peers.server import PeerFailed, PeerMissing, PeerServer

CONNECTIONS, PIPELINE = 8, 1024
"""8,192 requests are unanswered at a time, as in the load of our own broker."""

FIRST_GUESS = 2000.0
"""Requests a second, assumed before any have been counted."""

BODY = "x" * 100
TIMEOUT = 300.0


class RedisServer(PeerServer):
    """A Redis server. ``settings`` are of redis.conf."""

    name = "Redis"
    ready = "Ready to accept connections"
    defaults: ClassVar[Mapping[str, str]] = {
        "bind": "127.0.0.1",
        "appendonly": "yes",
        "appendfsync": "always",
        "auto-aof-rewrite-percentage": "0",
        "save": '""',
    }

    def version(self) -> str:
        for program in ("redis-server", "redis-benchmark"):
            if shutil.which(program) is None:
                raise PeerMissing(
                    f"there is no {program}: .ci/need-debian redis-server=redis-server installs it"
                )
        said = subprocess.run(
            ["redis-server", "--version"], capture_output=True, text=True, check=True
        ).stdout
        return "Redis " + said.partition("v=")[2].split()[0]

    def prepare(self) -> None:
        settings = {"port": str(self.port), "dir": str(self.folder), **self.settings}
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self.folder / "redis.conf").write_text(text)

    def command(self) -> Sequence[str]:
        return ["redis-server", str(self.folder / "redis.conf")]


class Redis(Contender):
    """A stream; loaded by redis-benchmark, and by redis-py."""

    name = "Redis streams"
    peer = "redis"
    durability = "append-only file forced before the answer"

    def __init__(self) -> None:
        self._server = RedisServer(Path())
        self._guess: dict[tuple[int, int], float] = {}

    def version(self) -> str:
        return self._server.version()

    def open(self, folder: Path) -> AbstractContextManager[object]:
        self._server = RedisServer(folder)
        return self._server

    def runs(self) -> Mapping[str, Run]:
        return {
            "singles": lambda warm_up, seconds: {
                "singles": self._run(CONNECTIONS, PIPELINE, warm_up, seconds)
            },
            "depth-1": lambda warm_up, seconds: {"depth-1": self._run(1, 1, warm_up, seconds)},
            "python": lambda warm_up, seconds: run_python("redis", str(self._server.port), warm_up, seconds),
        }

    def processes(self) -> list[int]:
        return self._server.processes()

    def settings(self) -> list[str]:
        return (self._server.folder / "redis.conf").read_text().splitlines()

    def clients(self) -> list[str]:
        return [
            f"singles: redis-benchmark -c {CONNECTIONS} -P {PIPELINE} XADD stream * body (100 bytes)",
            "depth 1: redis-benchmark -c 1 -P 1, the same",
            "Python: redis-py, pipelines of 100 XADD without MULTI; XREAD COUNT 1000",
        ]

    def _run(self, connections: int, pipeline: int, warm_up: float, seconds: float) -> Measure:
        """Run the tool, which takes no time: the warm-up tells how many requests take about that many seconds."""
        shape = connections, pipeline
        guess = self._guess.get(shape, FIRST_GUESS)
        warm = self._benchmark(shape, max(2 * connections * pipeline, int(guess * warm_up)))
        found = self._benchmark(shape, max(2 * connections * pipeline, int(warm.rate * seconds)))
        self._guess[shape] = found.rate
        acknowledged = warm.acknowledged + found.acknowledged
        with redis.Redis(port=self._server.port) as client:
            held = int(client.xlen("stream"))
            client.delete("stream")
        if held != acknowledged:
            raise PeerFailed(f"Redis acknowledged {acknowledged} messages, the stream has {held}")
        return found._replace(acknowledged=acknowledged)

    def _benchmark(self, shape: tuple[int, int], requests: int) -> Measure:
        connections, pipeline = shape
        requests += -requests % (connections * pipeline)  # otherwise the tool does that, without a message
        command = [
            "redis-benchmark",
            "-p",
            str(self._server.port),
            "-c",
            str(connections),
            "-P",
            str(pipeline),
        ]
        command += ["-n", str(requests), "--csv", "XADD", "stream", "*", "body", BODY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            raise PeerFailed(f"redis-benchmark ended with {done.returncode}: {done.stdout}{done.stderr}")
        return parsed(done.stdout, requests)


def parsed(output: str, requests: int) -> Measure:
    """Return the figures of ``redis-benchmark --csv``, which rounds to a thousandth of a millisecond."""
    [row] = csv.DictReader(line for line in output.splitlines() if line.startswith('"'))
    p50, p99 = (float(row[f"p{share}_latency_ms"]) / 1000 for share in (50, 99))
    return Measure(float(row["rps"]), p50, p99, requests)
