"""Test which build a process runs: compiled if that is installed, whole, of this source, and not switched off."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import journal
from journal import compiled
from journal.compiled import LAYOUTS, LEAVES, PACKAGE, Build
from tests.compiled.builds import INSTALLED, compiled_folder
from tests.support.broker_process import told_broker
from tests.support.repository import PACKAGES, ROOT

FILES = "import sys, journal; import " + ", ".join(LEAVES)
TOLD = f"{FILES}; print(journal.BUILD.name, *[sys.modules[name].__file__ for name in {LEAVES!r}], sep='\\n')"


def python(packages: Path, code: str = TOLD, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds the packages there, and the tests' other packages in its own environment."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/", env={"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def installed(tmp_path):
    """What ``make compiled`` has installed, to be changed."""
    assert compiled_folder().is_dir()
    copy = tmp_path / "packages"
    for name in ("journal", "txbroker", PACKAGE):
        shutil.copytree(INSTALLED / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_what_the_tests_run_is_what_their_path_says():
    is_installed = Path(journal.__file__).is_relative_to(INSTALLED)
    assert (journal.BUILD is Build.COMPILED) == is_installed
    assert compiled.choose.__module__ == "journal.compiled"


def test_every_types_file_is_a_leafs_or_a_layouts():
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("journal", "txbroker", "spark")
        for path in (ROOT / folder).rglob("*.pxd")
    }
    assert found == {*LEAVES, *LAYOUTS}


def test_nothing_is_compiled_in_place():
    """A shared object beside a source that has changed since would be imported without a word."""
    folders = ("journal", "txbroker", "spark", "packaging", "tests", "benchmarks")
    found = [
        path for folder in folders for path in (ROOT / folder).rglob("*.so") if "build" not in path.parts
    ]
    assert found == []


@pytest.mark.slow
def test_from_the_checkout_the_source_runs():
    ran = python(ROOT)
    name, *files = ran.stdout.split()
    assert name == "NOT_INSTALLED", ran.stderr
    assert files == [str(ROOT / f"{leaf.replace('.', '/')}.py") for leaf in LEAVES]


@pytest.mark.slow
def test_where_it_is_installed_every_leaf_is_compiled(installed):
    ran = python(installed)
    name, *files = ran.stdout.split()
    assert name == "COMPILED", ran.stderr
    folder = installed / PACKAGE / compiled_folder().name
    assert [Path(file).parent for file in files] == [folder] * len(LEAVES)
    assert all(file.endswith(".so") for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["1", "yes"])
def test_a_process_that_is_told_so_runs_the_source(installed, value):
    ran = python(installed, TXBROKER_PURE=value)
    name, *files = ran.stdout.split()
    assert name == "SWITCHED_OFF", ran.stderr
    assert all(file.endswith(".py") for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_and_zero_tell_nothing(installed, value):
    assert python(installed, TXBROKER_PURE=value).stdout.startswith("COMPILED\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name + suffix for name in (LEAVES[0], LAYOUTS[0]) for suffix in (".py", ".pxd")]
)
def test_another_source_than_was_compiled_is_refused(installed, name):
    """Also a change of types only: what is compiled in is not what is read."""
    stem, _, suffix = name.rpartition(".")
    with (installed / f"{stem.replace('.', '/')}.{suffix}").open("a") as file:
        file.write("# changed\n")
    ran = python(installed)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(
        f"journal.compiled.BuildMismatch: the compiled modules in {installed / PACKAGE} were compiled"
    )
    assert "Install txbroker and txbroker-compiled anew" in last
    assert python(installed, TXBROKER_PURE="1").stdout.startswith("SWITCHED_OFF\n")


@pytest.mark.slow
def test_an_installation_that_is_not_whole_is_refused(installed):
    """Half of the modules compiled and half not would be a build that nobody has tested."""
    next(installed.rglob(f"{LEAVES[0]}.*.so")).unlink()
    last = python(installed).stderr.splitlines()[-1]
    assert f"are not for this Python, {sys.version.split()[0]}, or are not whole ({LEAVES[0]})" in last


@pytest.mark.slow
def test_status_says_which_build_the_broker_and_the_client_run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tests.support.broker_process.ENVIRONMENT", {**os.environ, "PYTHONPATH": str(INSTALLED)}
    )
    with told_broker(tmp_path / "data", "--listen", "tcp:0:interface=127.0.0.1") as broker:
        port = broker.ready()
        ran = subprocess.run(
            [sys.executable, "-m", "txbroker", "--broker", f"tcp:127.0.0.1:{port}", "--json", "status"],
            env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    values = json.loads(ran.stdout)
    assert values["build"] == "compiled"
    assert values["client_build"] == journal.BUILD.value
