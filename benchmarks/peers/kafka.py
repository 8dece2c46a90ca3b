"""A server of Kafka 4, one node that is broker and controller (KRaft), from Maven Central's jars."""

from __future__ import annotations

import base64
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.peers.jars import classpath, jars
from benchmarks.peers.server import PeerMissing, PeerServer

FORCED = {"log.flush.interval.messages": "1"}
"""The same as ``flush.messages=1`` for each topic: every append is forced before it is acknowledged."""

HEAP = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
"""JVM options as in Kafka's own start script."""


class KafkaServer(PeerServer):
    """A Kafka server: ``with KafkaServer(folder, settings) as server: server.bootstrap``; ``settings`` are of
    server.properties.

    By default it forces nothing before it acknowledges, which is Kafka's default; :data:`FORCED` gives the same
    durability as the others.
    """

    name = "Kafka"
    ready = r"KafkaRaftServer.*Kafka Server started"
    ports_wanted = 2
    defaults: ClassVar[Mapping[str, str]] = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
    }

    def version(self) -> str:
        if shutil.which("java") is None:
            raise PeerMissing(
                "java is not installed: .ci/need-debian java=openjdk-17-jre-headless installs it"
            )
        [server] = jars("kafka").glob("kafka-server-[0-9]*.jar")
        found = re.search(r"([\d.]+)\.jar$", server.name)
        assert found is not None
        return f"Kafka {found[1]}"

    @property
    def bootstrap(self) -> str:
        """Return the value of ``bootstrap.servers`` for its clients."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        broker, controller = self.ports
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.folder / "data"),
            **self.settings,
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        # the tool takes a dash at the beginning for an option
        cluster = "c" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        format_it = (
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            cluster,
            "--config",
            str(properties),
        )
        self.run("java", "-Xmx256m", "-cp", classpath("kafka"), *format_it)

    def command(self) -> Sequence[str]:
        quiet = "-Dorg.slf4j.simpleLogger."
        return [
            "java", *HEAP, f"{quiet}defaultLogLevel=warn", f"{quiet}log.kafka.server.KafkaRaftServer=info",
            "-cp", classpath("kafka"), "kafka.Kafka", str(self.folder / "server.properties"),
        ]  # fmt: skip
