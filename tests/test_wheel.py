"""The wheel works alone: built, installed beside only the pinned packages, run from an empty folder."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("journal", "txbroker", "spark", "twisted")
READY = re.compile(r"txbroker ready.*listening=(tcp:127\.0\.0\.1:\d+)")
PATIENCE = 60.0
ONE_MESSAGE = """
import sys, txbroker
with txbroker.connect(sys.argv[1]) as broker:
    broker.create_topic("t", partitions=1)
    broker.send("t", b"hello")
    message = next(iter(broker.consume("t", group="g")))
    print(txbroker.__file__, message.value)
"""

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=10 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))
    }
    return environment | {"PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: what an earlier build left in the checkout must not get in."""
    source = tmp_path_factory.mktemp("source")
    for folder in filter(Path.is_dir, (ROOT / name for name in SHIPPED)):
        shutil.copytree(folder, source / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, source)
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, source, cwd=target)
    (built,) = target.glob("txbroker-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment that holds the wheel and the pinned packages."""
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    pip = (place / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements/runtime.txt", cwd=place)
    run(*pip, "--no-index", wheel, cwd=place)
    run(place / "venv/bin/python", "-m", "pip", "check", cwd=place)
    return place / "venv/bin"


@contextlib.contextmanager
def service(installed: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running broker and the endpoint its ready line names; killed if it says nothing in time."""
    command = [installed / "twistd", "-n", "txbroker", "--data", folder / "data"]
    process = subprocess.Popen(
        [*command, "--listen", "tcp:0:interface=127.0.0.1"],
        cwd=folder,
        env=clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if ready := READY.search(line):
                break
        else:
            pytest.fail("the broker ended before it was ready:\n" + "".join(said))
        yield process, ready[1]
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def test_the_wheel_holds_the_plugin_and_no_package_of_twisteds_own(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert [file for file in names if file.startswith("twisted/")] == ["twisted/plugins/txbroker_plugin.py"]
    assert {"journal/py.typed", "txbroker/py.typed"} <= set(names)
    assert {file.split("/")[0] for file in names} <= {
        *SHIPPED,
        "-".join(wheel.name.split("-")[:2]) + ".dist-info",
    }


def test_twistd_finds_the_plugin_from_an_empty_folder(installed, tmp_path):
    said = run(installed / "twistd", "txbroker", "--help", cwd=tmp_path)
    assert "--listen" in said
    assert "--data" in said


def test_the_command_line_is_installed(installed, tmp_path):
    assert "topics" in run(installed / "txbroker", "--help", cwd=tmp_path)


def test_a_message_goes_through_the_installed_broker_which_then_stops_cleanly(installed, tmp_path):
    with service(installed, tmp_path) as (process, endpoint):
        said = run(installed / "python", "-c", ONE_MESSAGE, endpoint, cwd=tmp_path)
        assert "site-packages" in said
        assert said.endswith("b'hello'\n")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, rest
