import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers.jars import classpath
from benchmarks.peers.kafka import FORCED, KafkaServer
from benchmarks.peers.server import PeerFailed, PeerMissing, PeerServer, free_ports
from demo.database_process import runs

pytestmark = pytest.mark.slow


class Echo(PeerServer):
    """The smallest server there is, in ways that one can ask for."""

    name = "Echo"
    ready = "listening"
    program = (
        "import socket, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "print('listening', flush=True)\n"
        "time.sleep(300)\n"
    )

    def version(self) -> str:
        return "Echo 1"

    def prepare(self) -> None:
        Path(self.folder, "settings").write_text(str(self.settings))

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program, str(self.port)]


class Grumpy(Echo):
    program = "raise SystemExit('no')"


class Late(Echo):
    """Somebody else takes the port of the first start."""

    taken: socket.socket | None = None

    def prepare(self) -> None:
        if self.taken is None:
            self.taken = socket.create_server(("127.0.0.1", self.port))


def test_ports_that_are_given_out_together_differ_and_are_free():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_server_takes_connections_while_its_context_is_open_and_ends_with_what_it_began(tmp_path):
    with Echo(tmp_path / "echo") as server:
        socket.create_connection(("127.0.0.1", server.port)).close()
        family = server.processes()
        assert len(family) == 2
        assert server.cpu_seconds() > 0
    assert not any(map(runs, family))


def test_a_server_that_ends_by_itself_is_a_failure_with_its_last_words(tmp_path):
    with pytest.raises(PeerFailed, match=r"(?s)Echo ended with 1.*\bno\b"), Grumpy(tmp_path / "grumpy"):
        pytest.fail("it was said to be ready")


def test_a_port_that_was_taken_meanwhile_is_no_failure(tmp_path):
    server = Late(tmp_path / "late")
    with server:
        assert server.taken is not None
        assert server.port != server.taken.getsockname()[1]
    server.taken.close()


def test_own_settings_win_over_the_defaults_of_a_server_and_both_are_in_its_file(tmp_path, monkeypatch):
    server = KafkaServer(tmp_path, {"num.partitions": "7", **FORCED})
    monkeypatch.setattr(server, "run", lambda *command: "")
    monkeypatch.setattr("benchmarks.peers.kafka.classpath", lambda peer: peer)
    server.ports = [1001, 1002]
    server.prepare()
    lines = (tmp_path / "server.properties").read_text().splitlines()
    assert "num.partitions=7" in lines
    assert "log.flush.interval.messages=1" in lines
    assert "process.roles=broker,controller" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002" in lines
    assert len({line.partition("=")[0] for line in lines}) == len(lines)


def test_a_peer_without_java_is_missing_and_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PeerMissing, match="java=openjdk-17"), KafkaServer(tmp_path / "kafka"):
        pytest.fail("there is no java")


@pytest.mark.slow
def test_kafka_takes_messages_on_ports_of_its_own_and_ends_with_its_context(tmp_path):
    with KafkaServer(tmp_path / "kafka", FORCED) as server:
        java = ["java", "-cp", classpath("kafka")]
        topic = [*java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.bootstrap]
        subprocess.run([*topic, "--create", "--topic", "here"], check=True, capture_output=True)
        listed = subprocess.run([*topic, "--list"], check=True, capture_output=True, text=True)
        family = server.processes()
    assert "here" in listed.stdout.split()
    assert not any(map(runs, family))
