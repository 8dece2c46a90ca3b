"""Test what a service manager is told, over a real socket: by a service on this process's threads, and by a process."""

import os
import re
import signal
import socket
import sys
import time

import pytest
from twisted.internet.task import Clock

import journal
from journal.constants import MIB
from journal.engine.settings import JournalSettings
from journal.formats.version import FORMAT, PROGRAM
from journal.formats.version_file import Written, pack_version
from tests.support.broker_process import ENVIRONMENT, PATIENCE, SMALL_FILES, ToldBroker
from tests.support.reactor_thread import reactor_thread
from tests.support.waiting import eventually
from txbroker.monitoring.health import Health, Phase
from txbroker.server import service as services
from txbroker.server.given_settings import assignment
from txbroker.server.service import TxBrokerService
from txbroker.server.settings.config import merged
from txbroker.server.systemd import Systemd

RECOVERY = "EXTEND_TIMEOUT_USEC=120000000"
STOP = "EXTEND_TIMEOUT_USEC=45000000"


class Manager:
    """The socket of a service manager, and what has come."""

    def __init__(self, address):
        self.address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address.replace("@", "\0", 1))
        self.told = []

    def next(self, within=PATIENCE):
        """The lines of the next datagram; None if there is none in time."""
        self._socket.settimeout(within)
        try:
            self.told.append(self._socket.recv(4096).decode().splitlines())
        except TimeoutError:
            return None
        return self.told[-1]

    def until(self, line):
        """Everything up to a datagram that has the line."""
        begin = len(self.told)
        while line not in (found := self.next() or pytest.fail(f"never told {line}, but {self.told}")):
            pass
        assert found is self.told[-1]
        return self.told[begin:]

    def rest(self):
        found = []
        while (one := self.next(0.001)) is not None:
            found.append(one)
        return found

    def close(self):
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(tmp_path, request):
    name = f"@txbroker-test-{os.getpid()}" if request.param == "abstract" else tmp_path / "notify"
    made = Manager(name)
    yield made
    made.close()


@pytest.fixture
def plain_manager(tmp_path):
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


def teller(manager, clock=None, **environment):
    health = Health()
    told = Systemd(clock or Clock(), health, 30, {"NOTIFY_SOCKET": manager.address, **environment})
    return health, told


def test_each_phase_is_told_with_what_it_means_to_a_manager(manager):
    health, told = teller(manager)
    told.start()
    health.is_now(Phase.RECOVERING, "replaying the journal: 37 %")
    health.is_now(Phase.WAITING, "no endpoint is open")
    health.is_now(Phase.SERVING)
    health.is_now(Phase.STOPPING)
    assert manager.rest() == [
        [RECOVERY, "STATUS=recovering"],
        [RECOVERY, "STATUS=recovering: replaying the journal: 37 %"],
        ["READY=1", "STATUS=waiting for a login: no endpoint is open"],
        ["READY=1", "STATUS=ready"],
        ["STOPPING=1", STOP, "STATUS=stopping"],
    ]
    told.stop()


def test_a_failure_is_an_end_whose_reason_is_told_and_nothing_takes_it_back(plain_manager):
    health, told = teller(plain_manager)
    told.start()
    health.is_now(Phase.FAILED, "the disk")
    health.is_now(Phase.SERVING)
    assert plain_manager.rest()[1:] == [["STOPPING=1", STOP, "STATUS=failed: the disk"]]
    told.stop()


def test_no_text_becomes_an_assignment_of_its_own(plain_manager):
    health, told = teller(plain_manager)
    health.is_now(Phase.FAILED, "/data\nMAINPID=1\nhas failed")
    [lines] = plain_manager.rest()
    assert lines[2:] == ["STATUS=failed: /data MAINPID=1 has failed"]
    told.stop()


def test_without_a_manager_nothing_is_opened_or_followed():
    clock, health = Clock(), Health()
    told = Systemd(clock, health, 30, {"WATCHDOG_USEC": "1000000"})
    descriptors = len(os.listdir("/proc/self/fd"))
    told.start()
    health.is_now(Phase.SERVING)
    with told.reloading():
        pass
    assert clock.getDelayedCalls() == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
    told.stop()


def test_pings_come_twice_in_the_time_that_the_manager_waits_for_one(plain_manager):
    clock = Clock()
    _, told = teller(plain_manager, clock, WATCHDOG_USEC="10000000", WATCHDOG_PID=str(os.getpid()))
    told.start()
    clock.pump([1.0] * 20)
    assert plain_manager.rest()[1:] == [["WATCHDOG=1"]] * 5
    told.stop()
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"},
    ],
    ids=str,
)
def test_who_is_not_waited_for_sends_no_pings(plain_manager, environment):
    clock = Clock()
    _, told = teller(plain_manager, clock, **environment)
    told.start()
    clock.pump([1.0] * 20)
    assert len(plain_manager.rest()) == 1
    told.stop()


def test_reading_again_is_told_with_its_time_and_its_end(plain_manager):
    health, told = teller(plain_manager)
    health.is_now(Phase.SERVING)
    before = time.monotonic_ns() // 1000
    with told.reloading():
        _, [reloading, at] = plain_manager.rest()
    assert reloading == "RELOADING=1"
    assert before <= int(at.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    assert plain_manager.rest() == [["READY=1", "STATUS=ready"]]
    told.stop()


def test_the_end_of_reading_again_is_told_if_that_fails_too(plain_manager):
    health, told = teller(plain_manager)
    health.is_now(Phase.SERVING)
    with pytest.raises(ValueError, match="unreadable"), told.reloading():
        raise ValueError("unreadable")
    assert plain_manager.rest()[-1] == ["READY=1", "STATUS=ready"]
    told.stop()


@pytest.mark.parametrize("phase", [Phase.RECOVERING, Phase.STOPPING, Phase.FAILED])
def test_who_reads_again_while_it_starts_or_ends_never_says_that_it_is_ready(plain_manager, phase):
    health, told = teller(plain_manager)
    health.is_now(phase)
    plain_manager.rest()
    with told.reloading():
        pass
    assert plain_manager.rest() == []
    told.stop()


def test_a_manager_that_is_gone_is_logged_once_and_told_when_it_is_back(tmp_path, caplog):
    gone = Manager(tmp_path / "notify")
    gone.close()
    os.unlink(gone.address)
    events = []
    health, told = teller(gone)
    told.log = type(told.log)(observer=events.append)
    told.start()
    health.is_now(Phase.SERVING)
    assert [event["line"] for event in events] == [RECOVERY]
    assert "No such file" in str(events[0]["error"])
    back = Manager(gone.address)
    health.is_now(Phase.SERVING)
    assert back.rest() == [["READY=1", "STATUS=ready"]]
    told.stop()
    back.close()


def test_a_recovery_asks_for_time_with_each_progress_and_is_ready_when_it_listens(
    tmp_path, plain_manager, monkeypatch
):
    monkeypatch.setenv("NOTIFY_SOCKET", plain_manager.address)
    monkeypatch.setattr(services, "PROGRESS_INTERVAL", 0)
    monkeypatch.setattr(services, "tune", lambda interval: None)
    given = {"data": str(tmp_path / "data"), "listen": "tcp:0:interface=127.0.0.1"}
    config = merged(dict([assignment(SMALL_FILES)]), given)
    for start in (1, 2):
        with reactor_thread() as thread:
            service = TxBrokerService(config, thread.reactor, pytest.fail)
            thread.run(service.startService)
            eventually(lambda service=service: service.watching.health.is_ready, PATIENCE)
            assert service.ports, "it is not ready before it listens"
            thread.run(service.renew)
            thread.run(service.stopService)
        told = plain_manager.rest()
        ready = told.index(["READY=1", "STATUS=ready"])
        assert all(lines[0] == RECOVERY for lines in told[:ready])
        if start == 2:
            assert any("reading journal file" in lines[1] for lines in told[:ready])
        assert told[ready + 1][0] == "RELOADING=1"
        assert told[ready + 2 :] == [
            ["READY=1", "STATUS=ready"],
            ["STOPPING=1", STOP, "STATUS=stopping"],
        ]


HANGS_ON_SIGUSR1 = (
    "import signal, time\n"
    "def hang(*_): time.sleep(60)\n"
    "signal.signal(signal.SIGUSR1, hang)\n"
    "from twisted.scripts.twistd import run\n"
    "run()\n"
)


@pytest.mark.slow
def test_a_process_whose_reactor_hangs_sends_no_pings_and_says_where_when_it_is_ended(
    tmp_path, plain_manager
):
    environment = {**ENVIRONMENT, "NOTIFY_SOCKET": plain_manager.address, "WATCHDOG_USEC": "400000"}
    entry = (sys.executable, "-c", HANGS_ON_SIGUSR1)
    process = ToldBroker(
        tmp_path / "data", tmp_path / "log", ("--set", SMALL_FILES), entry, environment=environment
    )
    process.launch()
    try:
        before = plain_manager.until("READY=1")
        assert ["WATCHDOG=1"] in before, "it is watched from its first moment on"
        assert process.ready()
        for _ in range(3):
            assert plain_manager.next(2) == ["WATCHDOG=1"]
        os.kill(process.pid, signal.SIGUSR1)
        while plain_manager.next(1.0):
            pass
        assert plain_manager.next(1.0) is None
        os.kill(process.pid, signal.SIGABRT)  # as systemd does
        assert process.wait() == -signal.SIGABRT
        assert re.search(
            r"Fatal Python error: Aborted.*most recent call first.* in hang\n", process.output, re.DOTALL
        )
    finally:
        process.kill_for_good()


@pytest.mark.slow
def test_a_process_tells_its_stop_and_its_reload(tmp_path, plain_manager):
    environment = {**ENVIRONMENT, "NOTIFY_SOCKET": plain_manager.address}
    process = ToldBroker(tmp_path / "data", tmp_path / "log", ("--set", SMALL_FILES), environment=environment)
    process.launch()
    try:
        plain_manager.until("READY=1")
        os.kill(process.pid, signal.SIGHUP)
        assert plain_manager.until("READY=1")[0][0] == "RELOADING=1"
        os.kill(process.pid, signal.SIGTERM)
        assert plain_manager.next() == ["STOPPING=1", STOP, "STATUS=stopping"]
        assert process.wait() == 0
        assert plain_manager.rest() == []
    finally:
        process.kill()


@pytest.mark.slow
def test_whoever_starts_the_wrong_version_reads_why_in_the_status_of_the_service(tmp_path, plain_manager):
    """Seen as "cannot be opened": the reason was in the log alone, and out of sight after five tries."""
    environment = {**ENVIRONMENT, "NOTIFY_SOCKET": plain_manager.address}
    data = tmp_path / "data"
    journal.open(data, settings=JournalSettings(file_bytes=4 * MIB)).close()
    (data / "txbroker.version").write_bytes(pack_version(Written(FORMAT + 1, "7.7.0")))
    process = ToldBroker(data, tmp_path / "log", ("--set", SMALL_FILES), environment=environment)
    process.launch()
    try:
        assert process.wait() == 1
        [status] = [
            line for lines in plain_manager.rest() for line in lines if line.startswith("STATUS=failed")
        ]
        assert f"format {FORMAT + 1}, written by txbroker 7.7.0; this is txbroker {PROGRAM}" in status
        assert "Start version 7.7.0 or a newer one here, or go back to this one with the backup" in status
    finally:
        process.kill()
