"""ActiveMQ Artemis from Maven Central's jars, embedded in a process of its own; transactions local and by XA."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import escape

from benchmarks.harness import machine_limits
from benchmarks.peers.contender import Contender, Measures, Run
from benchmarks.peers.jars import jars
from benchmarks.peers.programs import JAVA_WARM_UP, java, run_java
from benchmarks.peers.server import PeerMissing, PeerServer

HEAP = ("-Xms512m", "-Xmx2g", "-XX:+UseParallelGC")
"""JVM options as in its own start script, which uses ParallelGC."""

WINDOW = 8192
CLIENTS = 64
MODES = {
    "singles": ("singles", 1, 1),
    "depth-1": ("depth-1", 1, 1),
    "one-phase": ("session", CLIENTS, 1),
    "one-phase-10": ("session", CLIENTS, 10),
    "one-phase-10:XA in one phase": ("xa-one-phase", CLIENTS, 10),
    "two-phase": ("xa-two-phase", CLIENTS, 1),
}
"""By load: the mode of ArtemisLoad.java, clients, messages in each exchange."""


class ArtemisServer(PeerServer):
    """A server of Artemis. ``settings`` are of the element ``core`` of broker.xml.

    The buffer timeout, for which a journal waits for more writes, is the median time of a forced write of 4 KiB on this
    disk: ``artemis create`` measures and sets it much like that.
    """

    name = "Artemis"
    ready = r"(?m)^ready$"
    defaults: ClassVar[Mapping[str, str]] = {
        "security-enabled": "false",
        "persistence-enabled": "true",
        "journal-type": "ASYNCIO",
        "journal-datasync": "true",
        "journal-sync-transactional": "true",
        "journal-sync-non-transactional": "true",
        "journal-file-size": "10M",
        "journal-min-files": "10",
        "journal-pool-files": "20",
        "journal-max-io": "4096",
        "global-max-size": "1500M",
        "critical-analyzer": "false",
        "management-notification-address": "activemq.notifications",
    }

    def version(self) -> str:
        if shutil.which("java") is None:
            raise PeerMissing(
                "java is not installed: .ci/need-debian java=openjdk-17-jre-headless installs it"
            )
        if not list(Path("/usr/lib").glob("*/libaio.so.1*")):
            raise PeerMissing(
                "libaio is not installed: .ci/need-debian '/usr/lib/*/libaio.so.1*=libaio1' installs it"
            )
        [server] = jars("artemis").glob("artemis-server-[0-9]*.jar")
        found = re.search(r"([\d.]+)\.jar$", server.name)
        assert found is not None
        return f"Artemis {found[1]}"

    @property
    def url(self) -> str:
        """Return the URL for its own client."""
        return f"tcp://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        timeout = round(machine_limits.forces(self.folder, 0.5).quantile(0.5) * 1e9)
        settings = {"journal-buffer-timeout": str(timeout), **self.settings}
        for place in ("journal", "bindings", "large-messages", "paging"):
            settings[f"{place}-directory"] = str(self.folder / place)
        (self.folder / "broker.xml").write_text(broker_xml(self.url, settings))

    def command(self) -> Sequence[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [*java("artemis", "ArtemisServer", [*HEAP, quiet]), str(self.folder / "broker.xml")]


def broker_xml(acceptor: str, settings: Mapping[str, str]) -> str:
    """Return the text of broker.xml."""
    inner = "".join(f"    <{name}>{escape(value)}</{name}>\n" for name, value in settings.items())
    return (
        '<configuration xmlns="urn:activemq">\n  <core xmlns="urn:activemq:core">\n'
        f"{inner}"
        f'    <acceptors><acceptor name="netty">{acceptor}</acceptor></acceptors>\n'
        '    <address-settings><address-setting match="#"><address-full-policy>PAGE</address-full-policy>'
        "</address-setting></address-settings>\n  </core>\n</configuration>\n"
    )


class Artemis(Contender):
    """A durable queue; loaded by its own client, with local and with XA transactions."""

    name = "Artemis"
    peer = "artemis"
    durability = "journal forced before the answer (journal-datasync)"
    warm_up = JAVA_WARM_UP

    def __init__(self) -> None:
        self._server = ArtemisServer(Path())
        self._queues = 0

    def version(self) -> str:
        return self._server.version()

    def open(self, folder: Path) -> AbstractContextManager[object]:
        self._server = ArtemisServer(folder)
        return self._server

    def runs(self) -> Mapping[str, Run]:
        return {load: functools.partial(self._run, load) for load in MODES}

    def processes(self) -> list[int]:
        return self._server.processes()

    def settings(self) -> list[str]:
        return (self._server.folder / "broker.xml").read_text().splitlines()

    def clients(self) -> list[str]:
        return [
            "all: the core client, persistent messages of 100 bytes (ArtemisLoad.java)",
            f"singles: one session, send acknowledgements, producerWindowSize=-1, at most {WINDOW} unanswered",
            "depth 1: one session, blockOnDurableSend",
            f"one phase: {CLIENTS} connections with a transacted session each, sends that do not block, commit",
            f"XA: {CLIENTS} connections with an XA session each: start, sends, end, (prepare,) commit",
        ]

    def _run(self, load: str, warm_up: float, seconds: float) -> Measures:
        self._queues += 1
        mode, clients, messages = MODES[load]
        arguments = (self._server.url, f"queue{self._queues}", mode, clients, messages, WINDOW)
        return {load: run_java("artemis", "ArtemisLoad", arguments, warm_up, seconds)}
