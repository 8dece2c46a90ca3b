"""Test the audit's command beside brokers: one that works and keeps its files, and one that starts meanwhile."""

from __future__ import annotations

import json
import threading

import pytest

import txbroker
from journal.errors import DirectoryLocked
from journal.formats.filenames import LOCK
from journal.vfs.filesystem import OSFilesystem
from spark.audit.conduct import STATE
from tests.spark.audit.test_audit_command import LOCAL, called, check_sound, run, start
from tests.spark.audit.test_audit_of_sound import wait_until
from tests.spark.world import SEGMENT
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A broker whose files come and go ten times a second."""
    settings = ("outcome_archive=on", "checkpoint_interval=100ms", "file_bytes=20MiB")
    stop = threading.Event()
    with BrokerProcess(tmp_path_factory.mktemp("busy") / "data", *settings) as process:
        with txbroker.connect(process.address) as broker:
            broker.create_topic("kept", partitions=2)
            broker.create_topic("short", partitions=2, segment_bytes=SEGMENT, retention_bytes=SEGMENT)
        writer = threading.Thread(target=write_now_and_then, args=(process.address, stop))
        writer.start()
        try:
            wait_until(lambda: list((process.data_dir / "checkpoints").glob("*.checkpoint")))
            yield process
        finally:
            stop.set()
            writer.join()


def test_with_a_pin_nothing_goes_away_under_an_audit(busy, tmp_path):
    ended = run(
        tmp_path, "--data", busy.data_dir, "--out", "report", "--master", LOCAL, "--broker", busy.address
    )
    check_sound(ended, tmp_path / "report")
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert "taken" not in summary["notices"]
    [line] = [line for line in summary["proven"] if "at work in it" in line]
    assert line.endswith("and nothing was removed meanwhile.")
    with txbroker.connect(busy.address) as broker:
        assert broker.status()["pins"] == 0
        wait_until(lambda: len(list((busy.data_dir / "checkpoints").glob("*.checkpoint"))) <= 3)


def test_a_broker_of_other_data_and_a_directory_that_is_at_work_are_refused(busy, tmp_path, monkeypatch):
    given = ("--data", str(busy.data_dir), "--out", "report")
    with BrokerProcess(tmp_path / "other") as other:
        ended = called(tmp_path, monkeypatch, *given, "--broker", other.address)
        assert ended.code == 2
        assert "it is not at work there; nothing was audited" in ended.err
    ended = called(tmp_path, monkeypatch, *given, "--copy-state")
    assert ended.code == 2
    assert "a broker is at work in" in ended.err
    ended = called(tmp_path, monkeypatch, *given, "--copy-state", "--broker", busy.address)
    assert ended.code == 2
    assert not (tmp_path / "report").exists()


@pytest.mark.deep  # the first one audits beside a broker at work
def test_a_broker_starts_while_an_audit_of_its_directory_goes_on(tmp_path):
    with BrokerProcess(tmp_path / "data", "checkpoint_interval=100ms", "file_bytes=20MiB") as process:
        with txbroker.connect(process.address) as broker:
            broker.create_topic("t")
            for number in range(200):
                broker.send("t", b"%d" % number)
        process.kill()
        arguments = ("--data", process.data_dir, "--out", "report", "--master", LOCAL, "--copy-state")
        with start(tmp_path, *arguments) as audit:
            state = tmp_path / "report" / STATE
            wait_until(lambda: (state / "tails").exists() or (state / "data" / "partitions").exists())
            wait_until(lambda: _is_free(process.data_dir))
            process.start()
            with txbroker.connect(process.address) as broker:
                assert audit.poll() is None, "the audit goes on"
                for number in range(200):
                    broker.send("t", b"more %d" % number)
            out, err = audit.communicate(timeout=280)
        assert audit.returncode == 0, (out, err)
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert any("a broker may have started in it" in line for line in summary["proven"])
    assert not state.exists()


def write_now_and_then(address, stop):
    with txbroker.connect(address) as broker:
        count = 0
        while not stop.wait(0.01):
            count += 1
            broker.send(("kept", "short")[count % 2], b"%d" % count + b"v" * 9000, partition=count // 2 % 2)
            tx = broker.transaction()
            for topic in ("kept", "short"):
                tx.send(topic, b"t" * 2000, partition=0)
            (tx.commit if count % 5 else tx.rollback)()


def _is_free(data_dir) -> bool:
    try:
        OSFilesystem(str(data_dir)).read_lock(LOCK).release()
    except DirectoryLocked:
        return False
    return True
