"""Test SIGHUP: it ends nothing, in recovery neither, and what may have been renewed is read again."""

import os
import signal
import ssl
import threading
import time

import pytest
from twisted.internet.task import Clock

from tests.monitoring.test_site import ask
from tests.server.endpoints.test_tls_endpoint import connected
from tests.support.broker_process import PATIENCE, SMALL_FILES, told_broker
from tests.support.certificates import DAY, Folder
from tests.support.reactor_thread import reactor_thread
from tests.support.waiting import eventually
from txbroker.monitoring.health import Phase
from txbroker.server import service as services
from txbroker.server.endpoints.certificates import LOOK_INTERVAL
from txbroker.server.given_settings import assignment
from txbroker.server.hangup import Hangup
from txbroker.server.service import TxBrokerService
from txbroker.server.settings.config import merged


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def hangup():
    before = signal.getsignal(signal.SIGHUP)
    yield Hangup()
    signal.signal(signal.SIGHUP, before)


class Reactor(Clock):
    """A clock that a test advances."""

    def callFromThread(self, call, *arguments):
        self.callLater(0, call, *arguments)

    def callWhenRunning(self, call, *arguments):
        self.callLater(0, call, *arguments)


def test_one_that_comes_too_early_is_remembered_and_acted_on_once(hangup):
    hangup.catch()
    reactor, acted = Reactor(), []
    for _ in range(2):
        signal.raise_signal(signal.SIGHUP)
    hangup.act(reactor, lambda: acted.append(1))
    reactor.advance(0)
    assert acted == [1]
    signal.raise_signal(signal.SIGHUP)
    assert acted == [1], "the handler of a signal does no work itself"
    reactor.advance(0)
    assert acted == [1, 1]


def test_without_one_nothing_is_done(hangup):
    hangup.catch()
    reactor = Reactor()
    hangup.act(reactor, pytest.fail)
    reactor.advance(0)


def settings(folder, **more):
    given = {"data": folder.path / "data", "listen": folder.endpoint(), **more}
    return merged(dict([assignment(SMALL_FILES)]), {name: str(value) for name, value in given.items()})


def test_renewed_files_are_noticed_without_a_signal(folder, monkeypatch):
    reactor = Reactor()
    service = TxBrokerService(settings(folder), reactor, pytest.fail)
    monkeypatch.setattr(service, "_recover", lambda: None)
    service.startService()
    reactor.advance(0)
    renewed = folder.renewed(ends=3 * DAY)
    reactor.advance(LOOK_INTERVAL)
    assert set(service.certificates.not_after().values()) == {renewed.ends}
    folder.write("broker.pem")
    reactor.advance(LOOK_INTERVAL)
    assert service.certificates.has_failed
    folder.renewed()
    reactor.advance(LOOK_INTERVAL)
    assert not service.certificates.has_failed
    service.stopService()
    assert reactor.getDelayedCalls() == []


def test_certificates_that_cannot_be_used_end_the_start_before_recovery(folder):
    reactor, ended = Reactor(), []
    service = TxBrokerService(settings(folder), reactor, lambda: ended.append(1))
    folder.write("broker.pem")
    service.startService()
    reactor.advance(0)
    assert ended == [1]
    assert service.watching.health.phase is Phase.FAILED
    assert not (folder.path / "data").exists()


def test_in_recovery_it_renews_what_listens_and_harms_nothing(folder, hangup, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    recover = services.recover

    def slow(*arguments, **more):
        begun.set()
        assert may_end.wait(PATIENCE)
        return recover(*arguments, **more)

    monkeypatch.setattr(services, "recover", slow)
    monkeypatch.setattr(services, "tune", lambda interval: None)
    with reactor_thread() as thread:
        service = TxBrokerService(settings(folder, http=folder.endpoint()), thread.reactor, pytest.fail)
        hangup.act(thread.reactor, service.renew)
        thread.run(service.startService)
        try:
            assert begun.wait(PATIENCE)
            port = service.watching.ports[0].getHost().port
            renewed = folder.renewed()
            os.kill(os.getpid(), signal.SIGHUP)

            def is_renewed():
                with connected(port, folder) as secure:
                    return secure.getpeercert(binary_form=True) == renewed.der

            eventually(is_renewed, PATIENCE)
            assert service.watching.health.phase is Phase.RECOVERING
            may_end.set()
            eventually(lambda: service.watching.health.is_ready, PATIENCE)
            with connected(next(iter(service.ports.values())).getHost().port, folder) as secure:
                assert secure.getpeercert(binary_form=True) == renewed.der
        finally:
            may_end.set()
            thread.run(service.stopService)


def shown(folder, port, path, **headers):
    """The status and the text of a page over TLS."""
    context = ssl.create_default_context(cafile=folder.file("ca.pem"))
    return ask(port, path, context=context, **headers)


def is_still(log):
    """Whether a log does not grow for a while."""
    before = log.stat().st_size
    time.sleep(0.3)
    return log.stat().st_size == before


@pytest.mark.slow
def test_a_broker_outlives_many_and_takes_what_was_renewed(folder, tmp_path):
    log, token = tmp_path / "broker.log", tmp_path / "token"
    token.write_text("first")
    token.chmod(0o600)
    words = {"log_file": log, "http": folder.endpoint(), "http_token_file": token, "file_bytes": "4MiB"}
    options = [word for name, value in words.items() for word in ("--set", f"{name}={value}")]
    with told_broker(tmp_path / "data", "--listen", folder.endpoint(), *options) as broker:
        eventually(lambda: log.exists() and "recovering" in log.read_text())
        while "txbroker ready" not in log.read_text():
            assert broker.exit_code is None
            os.kill(broker.pid, signal.SIGHUP)
        port = int(log.read_text().partition(r"health and metrics at tls:127.0.0.1:")[2].split()[0])
        listens = int(log.read_text().partition(",tls:127.0.0.1:")[2].split()[0])
        eventually(lambda: is_still(log))  # all of them are carried out
        assert shown(folder, port, "/metrics", Authorization="Bearer first")[0] == 200

        log.rename(tmp_path / "broker.log.old")
        token.write_text("second")
        renewed = folder.renewed(ends=5 * DAY)
        os.kill(broker.pid, signal.SIGHUP)
        eventually(lambda: log.exists() and "new connections have the certificate" in log.read_text())
        with connected(listens, folder) as secure:
            assert secure.getpeercert(binary_form=True) == renewed.der
        assert shown(folder, port, "/metrics", Authorization="Bearer first")[0] == 401
        status, page = shown(folder, port, "/metrics", Authorization="Bearer second")
        assert status == 200
        not_after = (
            f'txbroker_certificate_not_after_seconds{{listener="tls:127.0.0.1:0"}} {renewed.ends:.0f}\n'
        )
        assert not_after in page
        assert "txbroker_certificate_reload_failed 0\n" in page

        folder.write("broker.key")
        token.write_text("two words")
        os.kill(broker.pid, signal.SIGHUP)
        eventually(lambda: "the old token stays in use" in log.read_text())
        assert "broker.key is empty; the old ones stay in use, until" in log.read_text()
        status, page = shown(folder, port, "/metrics", Authorization="Bearer second")
        assert status == 200
        assert not_after in page
        assert "txbroker_certificate_reload_failed 1\n" in page

        os.kill(broker.pid, signal.SIGTERM)
        assert broker.wait() == 0
        assert "Traceback" not in log.read_text() + broker.output
