"""Test the log: its forms, its levels, and that its files stay few."""

import io
import json
import os
import sys

import pytest
from twisted.logger import Logger, LogPublisher
from twisted.python.failure import Failure

from tests.server.test_tap import parsed, refusal
from tests.support.broker_process import told_broker
from tests.support.waiting import eventually
from txbroker.errors import InvalidSetting
from txbroker.server import log_output
from txbroker.server.log_output import is_set, observer_of
from txbroker.server.settings.config import merged


def settings(**values):
    return merged({"data": "d", **values}).service


@pytest.fixture(autouse=True)
def files(monkeypatch):
    """Closes what is opened here: a process that logs does so when it ends."""
    opened = []

    class Closed(log_output.KeptFiles):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            opened.append(self)

    monkeypatch.setattr(log_output, "KeptFiles", Closed)
    yield
    for each in opened:
        each.close()


@pytest.fixture
def logged():
    """Logs something as these settings say, and returns what was written."""

    def log(say, **values):
        output = io.StringIO()
        publisher = LogPublisher(observer_of(settings(**values), output))
        say(Logger("txbroker.test", observer=publisher))
        return output.getvalue()

    return log


def test_a_line_of_json_has_when_how_serious_from_where_and_what(logged):
    text = logged(lambda log: log.warn("a {what}\nin two lines", what="text"), log_format="json")
    [line] = map(json.loads, text.splitlines())
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "warn", "source": "txbroker.test", "message": "a text\nin two lines"}


def test_a_failure_has_its_traceback(logged):
    def fail(log):
        try:
            raise ValueError("gone wrong")
        except ValueError:
            log.failure("it failed", Failure())

    [line] = map(json.loads, logged(fail, log_format="json").splitlines())
    assert (line["level"], line["message"]) == ("critical", "it failed")
    assert "ValueError: gone wrong" in line["traceback"]


def test_what_cannot_be_formatted_is_a_line_too(logged):
    [line] = map(json.loads, logged(lambda log: log.info("{x.y}", x=5), log_format="json").splitlines())
    assert "Unable to format event" in line["message"] or line["message"]


@pytest.mark.parametrize(
    ("level", "found"),
    [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)],
)
def test_lines_below_the_level_are_left_out(logged, level, found):
    def say(log):
        log.debug("one")
        log.info("two")
        log.warn("three")
        log.error("four")

    assert len(logged(say, log_level=level, log_format="json").splitlines()) == found
    assert len(logged(say, log_level=level).splitlines()) == found


def test_of_its_files_a_bounded_number_is_kept_and_nothing_else_is_touched(tmp_path):
    path = tmp_path / "logs" / "broker.log"
    path.parent.mkdir()
    (path.parent / "broker.log.old").write_text("mine")
    publisher = LogPublisher(observer_of(settings(log_file=str(path), log_file_bytes="64KiB", log_files="3")))
    log = Logger("txbroker.test", observer=publisher)
    for number in range(5000):
        log.info("{number} {text}", number=number, text="x" * 100)
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2", "broker.log.3", "broker.log.old"]
    assert all(each.stat().st_size < 70 << 10 for each in path.parent.iterdir())
    assert "4999 " in path.read_text()
    assert path.stat().st_mode & 0o007 == 0, "what was logged is not for everybody"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such device")
def test_a_full_disk_under_the_log_stops_nothing():
    log = Logger("txbroker.test", observer=LogPublisher(observer_of(settings(log_file="/dev/full"))))
    for _ in range(3):
        log.info("lost")


@pytest.mark.slow
def test_a_file_that_cannot_be_opened_is_told(tmp_path):
    with pytest.raises(InvalidSetting, match=r"log_file .*/none/b.log cannot be opened: No such file"):
        observer_of(settings(log_file=str(tmp_path / "none" / "b.log")))
    with told_broker(tmp_path / "data", "--set", f"log_file={tmp_path}/none/b.log") as broker:
        assert broker.wait() == 1
        assert "cannot be opened" in broker.output
        assert "Traceback" not in broker.output
    assert not os.path.exists(tmp_path / "data")


def test_the_directory_of_the_data_is_the_brokers():
    assert "only the broker's own files may be" in refusal("--data", "d", "--set", "log_file=d/broker.log")
    assert parsed("--data", "d", "--set", "log_file=e/broker.log").service.log_file.endswith("/e/broker.log")


def test_without_a_setting_twistd_logs_as_it_does():
    assert not is_set(settings())
    assert is_set(settings(log_level="debug"))


@pytest.mark.parametrize("value", ["log_format=xml", "log_level=loud", "log_files=0", "log_file_bytes=1"])
def test_other_values_are_refused(value):
    assert value.partition("=")[0] in refusal("--data", "d", "--set", value)


@pytest.mark.slow
def test_a_broker_logs_as_it_is_told(tmp_path):
    path = tmp_path / "broker.log"
    with told_broker(
        tmp_path / "data", "--set", f"log_file={path}", "--set", "log_format=json", "--set", "file_bytes=4MiB"
    ) as broker:
        eventually(lambda: path.exists() and "txbroker ready" in path.read_text(), 30.0)
        assert "txbroker ready" not in broker.output
        lines = list(map(json.loads, path.read_text().splitlines()))
        assert lines[-1]["source"] == "txbroker.server.service.TxBrokerService"
