"""A private instance of RabbitMQ from Debian's packages: quorum queues and publisher confirms."""

from __future__ import annotations

import functools
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, NamedTuple

import pika

from benchmarks.peers.contender import Contender, Measure, Measures, Run
from benchmarks.peers.jars import classpath
from benchmarks.peers.programs import HEAP, JAVA_WARM_UP, output_of
from benchmarks.peers.python_clients import run_python
from benchmarks.peers.server import DIES_WITH_US, PeerFailed, PeerMissing, PeerServer

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""The programs. Debian's own commands in the PATH require the system's service."""

WINDOWS = {"singles": 8192, "depth-1": 1}
INTERVAL = 1
"""Seconds between the lines of PerfTest, which takes whole seconds only."""


class RabbitServer(PeerServer):
    """A RabbitMQ server. ``settings`` are of rabbitmq.conf. It has a private port mapper of Erlang, too."""

    name = "RabbitMQ"
    user = "rabbitmq"
    ready = "Server startup complete"
    ports_wanted = 3
    defaults: ClassVar[Mapping[str, str]] = {
        "listeners.tcp.default": "none",
        "log.console": "true",
        "log.console.level": "info",
        "log.file": "false",
        "disk_free_limit.absolute": "100MB",
        "vm_memory_high_watermark.absolute": "4GB",
        "loopback_users.guest": "true",
    }

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._mapper: subprocess.Popen[bytes] | None = None

    def version(self) -> str:
        found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        if not found:
            raise PeerMissing(
                "RabbitMQ is not installed: .ci/need-debian /usr/sbin/rabbitmq-server=rabbitmq-server installs it"
            )
        return "RabbitMQ " + found[-1].name.partition("-")[2]

    def environment(self) -> dict[str, str]:
        port, mapper, distribution = self.ports
        return {
            **super().environment(),
            "RUNNING_UNDER_SYSTEMD": "1",  # the script execs the server, which ends by SIGTERM
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"peer{port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }

    def prepare(self) -> None:
        settings = {**self.settings, "listeners.tcp.default": f"127.0.0.1:{self.port}"}
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        for name, content in (("rabbitmq.conf", text), ("enabled_plugins", "[].\n")):
            (self.folder / name).write_text(content)
            self.own(self.folder / name)
        self._mapper = subprocess.Popen(
            [*DIES_WITH_US, "epmd"], env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True, **self._identity(),
        )  # fmt: skip

    def command(self) -> Sequence[str]:
        return [str(PROGRAMS / "rabbitmq-server")]

    def _stop(self) -> None:
        super()._stop()
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            mapper.terminate()
            mapper.wait()


class Line(NamedTuple):
    """An interval in the output of PerfTest; latencies in seconds."""

    time: float
    confirmed: float
    p50: float
    p99: float


_LINE = re.compile(
    r"time (?P<time>[\d.]+) s, sent: .*?confirmed: (?P<confirmed>[\d,.]+) msg/s.*?"
    r"min/median/75th/95th/99th confirm latency: "
    r"[\d,]+/(?P<p50>[\d,]+)/[\d,]+/[\d,]+/(?P<p99>[\d,]+) µs"
)


def lines(output: str) -> list[Line]:
    """Return the intervals in the output of PerfTest."""
    found = (_LINE.search(line) for line in output.splitlines())
    return [
        Line(
            float(one["time"]),
            _number(one["confirmed"]),
            _number(one["p50"]) / 1e6,
            _number(one["p99"]) / 1e6,
        )
        for one in found
        if one is not None
    ]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def parsed(output: str, warm_up: float) -> Measure:
    """Return the intervals after the warm-up; latencies are the medians of theirs, since PerfTest gives none of all
    together.
    """
    told = lines(output)
    counted = [line for line in told if line.time > warm_up + INTERVAL / 2]
    if not counted:
        raise PeerFailed(f"PerfTest told of no interval after the warm-up:\n{output}")
    first = told.index(counted[0])
    begun = told[first - 1].time if first else 0.0
    confirmed = 0.0
    for before, line in zip([begun, *(line.time for line in counted)], counted, strict=False):
        confirmed += line.confirmed * (line.time - before)
    return Measure(
        confirmed / (counted[-1].time - begun),
        statistics.median(line.p50 for line in counted),
        statistics.median(line.p99 for line in counted),
        round(confirmed),
    )


class Rabbitmq(Contender):
    """A quorum queue of one member; loaded by PerfTest, and by pika."""

    name = "RabbitMQ quorum queue"
    peer = "rabbitmq"
    warm_up = JAVA_WARM_UP
    durability = "write-ahead log of the quorum queue forced before the confirm"

    def __init__(self) -> None:
        self._server = RabbitServer(Path())
        self._queues = 0

    def version(self) -> str:
        return self._server.version()

    def open(self, folder: Path) -> AbstractContextManager[object]:
        self._server = RabbitServer(folder)
        return self._server

    def runs(self) -> Mapping[str, Run]:
        return {
            "singles": functools.partial(self._run, "singles"),
            "depth-1": functools.partial(self._run, "depth-1"),
            "python": lambda warm_up, seconds: run_python(
                "rabbitmq", str(self._server.port), warm_up, seconds
            ),
        }

    def processes(self) -> list[int]:
        return self._server.processes()

    def settings(self) -> list[str]:
        return (self._server.folder / "rabbitmq.conf").read_text().splitlines()

    def clients(self) -> list[str]:
        return [
            "singles: PerfTest, one connection, persistent messages of 100 bytes, --confirm 8192, --quorum-queue",
            "depth 1: PerfTest, --confirm 1",
            "Python: pika, SelectConnection with publisher confirms, at most 4096 unanswered; basic_consume, no_ack",
        ]

    def _run(self, load: str, warm_up: float, seconds: float) -> Measures:
        self._queues += 1
        queue = f"queue{self._queues}"
        total = warm_up + seconds
        command = [
            "java", HEAP, "-cp", classpath("rabbitmq"), "com.rabbitmq.perf.PerfTest",
            "--uri", f"amqp://127.0.0.1:{self._server.port}", "--queue", queue, "--quorum-queue",
            "--producers", "1", "--consumers", "0", "--size", "100", "--flag", "persistent",
            "--confirm", str(WINDOWS[load]), "--interval", str(INTERVAL), "--time", str(round(total + 0.5)),
            "--id", load,
        ]  # fmt: skip
        measure = parsed(output_of(command, total), warm_up)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._server.port)) as connection:
            channel = connection.channel()
            held = channel.queue_declare(queue, passive=True).method.message_count
            channel.queue_delete(queue)
        if held < measure.acknowledged:
            raise PeerFailed(f"RabbitMQ confirmed {measure.acknowledged} messages, the queue has {held}")
        return {load: measure._replace(acknowledged=held)}
