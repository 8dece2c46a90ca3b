"""Test the distribution of the compiled modules: its version, its source distribution, and what it refuses to do."""

import os
import shutil
import subprocess
import sys
import tarfile

import pytest

import txbroker
from journal.compiled import PACKAGE, source_files
from tests.compiled.builds import INSTALLED, compiled_folder
from tests.support.repository import ROOT

VERSION = txbroker.__version__


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what is compiled, and of its build."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("journal", "txbroker", "packaging"):
        leaving = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=leaving)
    shutil.copy(ROOT / "LICENSE", copy)
    return copy


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], env={**os.environ, **environment}, text=True, timeout=300, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.slow
def test_it_is_of_the_version_of_the_package_and_stands_on_that_alone():
    assert compiled_folder().is_dir()
    metadata = (INSTALLED / f"{PACKAGE}-{VERSION}.dist-info/METADATA").read_text().splitlines()
    assert [line for line in metadata if line.startswith("Requires-Dist:")] == [
        f"Requires-Dist: txbroker=={VERSION}"
    ]
    ours = (INSTALLED / f"txbroker-{VERSION}.dist-info/METADATA").read_text().splitlines()
    assert f'Requires-Dist: txbroker-compiled=={VERSION}; extra == "compiled"' in ours


@pytest.mark.slow
def test_it_holds_one_build_and_nothing_of_the_packages_that_it_was_compiled_from():
    record = (INSTALLED / f"{PACKAGE}-{VERSION}.dist-info/RECORD").read_text().splitlines()
    held = {line.split(",")[0] for line in record if ".dist-info/" not in line}
    folder = compiled_folder()
    assert held == {
        f"{PACKAGE}/__init__.py",
        *(f"{PACKAGE}/{folder.name}/{file.name}" for file in folder.iterdir()),
    }


@pytest.mark.slow
def test_its_source_distribution_has_what_it_is_compiled_from(source, tmp_path):
    built = run(
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "--outdir",
        tmp_path,
        source / "packaging/compiled",
    )
    assert built.returncode == 0, built.stdout
    with tarfile.open(tmp_path / f"{PACKAGE}-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*source_files(), "journal/compiled.py", "journal/__init__.py", "setup.py", "LICENSE"} <= names


@pytest.mark.slow
def test_it_is_never_installed_in_place(source, tmp_path):
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", tmp_path)
    ran = run(*pip, "-e", source / "packaging/compiled")
    assert ran.returncode != 0
    assert "txbroker-compiled is not installed editable" in ran.stdout
    assert list(source.rglob("*.so")) == []


@pytest.mark.slow
def test_without_a_compiler_the_build_says_what_is_missing(source, tmp_path):
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    ran = run(*pip, source / "packaging/compiled", CC="/nowhere/cc")
    assert ran.returncode != 0
    assert "They need a C compiler and the headers of this Python" in ran.stdout
    assert "txbroker works without txbroker-compiled, slower" in ran.stdout


@pytest.mark.slow
def test_without_a_compiler_make_venv_says_so_and_goes_on(tmp_path):
    only = tmp_path / "bin"
    only.mkdir()
    target = tmp_path / "compiled"
    bash = shutil.which("bash")
    assert bash is not None
    ran = run(bash, ROOT / ".ci/install-compiled", sys.executable, target, PATH=str(only), CC="gcc")
    assert (ran.returncode, target.exists()) == (0, False), ran.stdout
    assert ran.stdout.startswith(
        "nothing is compiled: a C compiler is missing (on Debian: apt-get install gcc"
    )
    assert "the Python source runs" in ran.stdout
