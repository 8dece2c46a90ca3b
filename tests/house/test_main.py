"""Test ``python -m txbroker``: the command line, and what to install where a command lacks a package."""

import subprocess
import sys
from pathlib import Path

import pytest

import txbroker
from tests.support.repository import ROOT


def without(package: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules[{package!r}] = None; from txbroker.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("package", "arguments", "install"),
    [
        ("click", ["topics", "list"], "txbroker[cli]"),
        ("rich", ["topics", "list"], "txbroker[cli]"),
        ("crcmod", ["verify", "."], "txbroker[cli]"),
        ("twisted", ["drill", "--fresh"], "txbroker[server]"),
        ("jinja2", ["drill", "--fresh"], "txbroker[cli]"),
        ("twisted", ["bench", "produce", "--fresh"], "txbroker[server]"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install_and_nothing_is_done(
    tmp_path, package, arguments, install
):
    ran = without(package, *arguments, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"Error: this command needs the package {package}, which is not installed; nothing was done. "
        f"Install it with: pip install '{install}'\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "dump", "repair"])
def test_what_reads_a_data_directory_needs_no_package_of_a_broker(tmp_path, command):
    ran = without("twisted", command, ".", cwd=tmp_path)
    assert ran.stderr == "Error: . is not a data directory: it holds no 'journal'. Nothing was read\n"


def test_a_module_that_no_extra_brings_is_a_fault_like_any_other(tmp_path):
    ran = without("journal.formats.frame", "topics", "list", cwd=tmp_path)
    assert ran.returncode == 70
    assert "ModuleNotFoundError" in ran.stderr


def test_the_module_is_the_command_and_tells_the_one_version(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "txbroker", "--version"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout == f"txbroker, version {txbroker.__version__}\n"
