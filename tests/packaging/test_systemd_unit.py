"""Test the unit for systemd: by systemd's own tools, and that its times and limits are above those of the broker."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.backups import PACE
from journal.constants import MIB
from journal.quantities import duration, size
from tests.support.repository import ROOT
from txbroker.broker.sessions.settings import SECOND
from txbroker.cli.exits import Exit
from txbroker.server.connections.strangers import MAX_STRANGERS
from txbroker.server.service import SPARE_DESCRIPTORS
from txbroker.server.settings import config
from txbroker.server.systemd import PROGRESS_PATIENCE, STOP_RESERVE

FOLDER = ROOT / "packaging/systemd"
UNIT = (FOLDER / "txbroker.service").read_text()
WORST_EXPOSURE = 1.4
DEFAULTS = config.defaults()


def setting(name):
    """The value of a setting that is given once."""
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def seconds(name):
    return duration(setting(name).replace("min", "m")) / SECOND


def analyze(*words):
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing (on Debian: apt-get install systemd)"
    done = subprocess.run(
        ["systemd-analyze", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path):
    """The unit, with a program that there is here in the place of the broker's."""
    file = tmp_path / "txbroker.service"
    assert UNIT.count("/opt/txbroker/bin/txbroker") == 1
    file.write_text(UNIT.replace("/opt/txbroker/bin/txbroker", "/bin/sh"))
    return file


@pytest.mark.slow
def test_systemd_understands_every_line(unit):
    assert analyze("verify", unit) == ""


@pytest.mark.slow
def test_what_the_service_can_reach_is_little(unit):
    [exposure] = re.findall(
        r"Overall exposure level for txbroker.service: ([\d.]+)", analyze("security", "--offline=true", unit)
    )
    assert float(exposure) <= WORST_EXPOSURE


def test_the_user_that_it_runs_as_is_made():
    line = next(line for line in (FOLDER / "txbroker.conf").read_text().splitlines() if line.startswith("u "))
    assert line.split()[1] == setting("User") == setting("Group")


def test_it_waits_for_a_stop_longer_than_the_broker_takes():
    assert seconds("TimeoutStopSec") > DEFAULTS["stop_timeout"] / SECOND + STOP_RESERVE


def test_a_start_has_as_long_for_its_first_progress_as_for_any_other():
    assert seconds("TimeoutStartSec") == PROGRESS_PATIENCE


def test_a_broker_that_ends_threads_which_hang_is_not_taken_for_hung_itself():
    assert seconds("WatchdogSec") / 2 > STOP_RESERVE


def test_settings_that_make_no_sense_are_not_tried_again():
    assert setting("RestartPreventExitStatus") == str(int(Exit.USAGE))


def test_there_are_files_for_all_clients_and_segments():
    wanted = DEFAULTS["max_sessions"] + MAX_STRANGERS + DEFAULTS["open_files"] + SPARE_DESCRIPTORS
    assert int(setting("LimitNOFILE")) > wanted


def test_the_settings_file_that_init_writes_is_the_one_that_it_reads():
    assert setting("ExecStart").endswith("/txbroker serve --config /etc/txbroker/txbroker.toml")
    assert Path("/var/lib") / setting("StateDirectory") == Path("/var/lib/txbroker")


@pytest.mark.slow
def test_systemd_understands_the_backup_and_its_timer(tmp_path, unit):
    for name in ("txbroker-backup.service", "txbroker-backup.timer"):
        text = (FOLDER / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/txbroker/bin/txbroker", "/bin/sh"))
        assert analyze("verify", tmp_path / name) == ""


def test_a_backup_is_made_as_the_user_whose_the_data_are_in_a_directory_that_may_be_written():
    text = (FOLDER / "txbroker-backup.service").read_text()
    assert f"User={setting('User')}" in text
    [kept] = re.findall(r"^StateDirectory=(\S+)$", text, re.MULTILINE)
    commands = re.findall(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    assert {program for program, _ in commands} == {"/opt/txbroker/bin/txbroker"}
    assert [f"/var/lib/{kept}" in arguments for _, arguments in commands] == [True, True]
    data = setting("StateDirectory")
    assert f"unix:/var/lib/{data}/admin.sock" in text
    assert f"create /var/lib/{data} " in commands[0][1]


def test_the_backup_reads_as_slowly_as_the_one_that_is_measured_beside_sends():
    [rate] = re.findall(r" --rate (\S+)", (FOLDER / "txbroker-backup.service").read_text())
    assert size(rate) == PACE * MIB
