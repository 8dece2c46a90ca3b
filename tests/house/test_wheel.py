"""Test that both distributions work alone: built, installed beside only pinned packages, run from an empty folder."""

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

import txbroker
from tests.support.repository import ROOT

SHIPPED = ("journal", "txbroker", "spark", "pyspark_txbroker")
TREE = (
    *SHIPPED, "twisted", "packaging", "tests", "docs", "demo", "benchmarks", "examples", "models", "requirements",
    "newsfragments", ".ci",
)  # fmt: skip
VERSION = txbroker.__version__
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
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout: what an earlier build left there must not get in."""
    source = tmp_path_factory.mktemp("source")
    for folder in filter(Path.is_dir, (ROOT / name for name in TREE)):
        shutil.copytree(
            folder,
            source / folder.name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "results"),
        )
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, source)
    return source


def build(kind: str, source: Path, target: Path) -> Path:
    run(sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", target, source, cwd=target)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def server_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--wheel", source / "packaging/server", tmp_path_factory.mktemp("server"))


def environment(place: Path, requirements: str, *wheels: Path) -> Path:
    """The bin folder of a fresh environment that holds wheels of ours and pinned packages."""
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    pip = (place / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / requirements, cwd=place)
    run(*pip, "--no-index", *wheels, cwd=place)
    run(place / "venv/bin/python", "-m", "pip", "check", cwd=place)
    return place / "venv/bin"


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``pip install txbroker`` gives."""
    return environment(tmp_path_factory.mktemp("client"), "client.txt", wheel)


@pytest.fixture(scope="module")
def installed(wheel: Path, server_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``pip install 'txbroker[server]'`` gives."""
    return environment(tmp_path_factory.mktemp("server"), "runtime.txt", wheel, server_wheel)


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


def test_the_wheel_of_the_clients_holds_nothing_of_twisteds(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "journal/py.typed",
        "txbroker/py.typed",
        "journal/part_of_txbroker",
        "spark/part_of_txbroker",
        "txbroker/pages/page.html",
        "txbroker/drill/report/report.html",
        "spark/audit/report/audit.html",
    } <= {*names}
    shared = f"txbroker-{VERSION}.data"
    assert {file.split("/")[0] for file in names} == {*SHIPPED, f"txbroker-{VERSION}.dist-info", shared}
    for folder in (
        "systemd",
        "monitoring",
        "kubernetes",
    ):  # a file that is new there has to be shipped as well
        here = {file.name for file in (ROOT / "packaging" / folder).iterdir()} - {"alerts_test.yml"}
        below = f"{shared}/data/share/txbroker/{folder}/"
        assert {name.removeprefix(below) for name in names if name.startswith(below)} == here


def test_the_wheel_of_the_server_holds_the_plugin_and_no_package_of_twisteds_own(server_wheel):
    names = zipfile.ZipFile(server_wheel).namelist()
    ours = [file for file in names if ".dist-info/" not in file]
    assert ours == ["twisted/plugins/txbroker_plugin.py"]


def test_both_distributions_and_what_asks_for_the_other_are_of_the_version_of_the_package(
    wheel, server_wheel
):
    assert wheel.name.startswith(f"txbroker-{VERSION}-")
    assert server_wheel.name.startswith(f"txbroker_server-{VERSION}-")
    assert f'Requires-Dist: txbroker-server=={VERSION}; extra == "server"' in metadata(wheel)
    assert f"Requires-Dist: txbroker[cli,login,tokens,twisted]=={VERSION}" in metadata(server_wheel)


def metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().splitlines()


def test_only_what_users_install_is_an_extra(wheel):
    """Seen with what only this checkout needs published as extras."""
    extras = {line.split()[1] for line in metadata(wheel) if line.startswith("Provides-Extra: ")}
    assert extras == {
        *(
            "cli",
            "twisted",
            "server",
            "compiled",
            "tls",
            "login",
            "tokens",
            "celery",
            "postgresql",
            "sqlalchemy",
            "django",
            "zope",
            "zstd",
            "lz4",
            "spark",
        )
    }


def test_every_link_of_what_an_index_shows_works_there(wheel, server_wheel):
    for built in (wheel, server_wheel):
        shown = "\n".join(metadata(built)).partition("\n\n")[2]
        assert shown.startswith("# txbroker")
        assert [link for link in re.findall(r"\]\(([^)]*)\)", shown) if not link.startswith("https://")] == []


def test_the_examples_that_an_index_shows_are_those_of_the_readme(wheel):
    shown = "\n".join(metadata(wheel))
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert block in readme


def test_a_clients_installation_has_no_twisted_and_neither_an_empty_one(client, tmp_path):
    """Seen with the plugin's folder in the wheel: ``import twisted`` gave an empty namespace."""
    code = "import importlib.util as u; print([n for n in ('twisted', 'click', 'rich') if u.find_spec(n)])"
    assert run(client / "python", "-c", code, cwd=tmp_path) == "[]\n"
    apis = "import txbroker.client.asyncio, txbroker.coordinator, txbroker, journal; txbroker.atomic, journal.open"
    run(client / "python", "-W", "error", "-c", apis, cwd=tmp_path)


@pytest.mark.parametrize("command", [("txbroker",), ("python", "-m", "txbroker")], ids=" ".join)
def test_the_command_line_names_what_to_install_where_it_is_missing(client, tmp_path, command):
    done = subprocess.run(
        [client / command[0], *command[1:], "topics", "list"],
        cwd=tmp_path, env=clean_environment(), text=True, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "Error: this command needs the package click, which is not installed; nothing was done. "
        "Install it with: pip install 'txbroker[cli]'\n"
    )


def test_a_client_talks_to_a_broker_that_is_installed_elsewhere(client, installed, tmp_path):
    with service(installed, tmp_path) as (_, endpoint):
        assert run(client / "python", "-c", ONE_MESSAGE, endpoint, cwd=tmp_path).endswith("b'hello'\n")


def test_tests_run_from_the_source_distribution(source, tmp_path):
    archive = build("--sdist", source, tmp_path)
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    handful = (
        "tests/formats/test_frame.py",
        "tests/vfs/test_linux.py",
        "tests/house/test_style.py",
        "tests/client/core/test_core.py",
    )
    said = run(
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not deep",
        *handful,
        cwd=unpacked,
    )
    assert "[100%]" in said
    assert run(sys.executable, "-c", "import journal; print(journal.__file__)", cwd=unpacked).startswith(
        str(unpacked)
    )
    assert (unpacked / "packaging/server/twisted/plugins/txbroker_plugin.py").is_file()


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
