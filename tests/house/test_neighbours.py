"""Test that a file that hides ``journal`` or ``spark``, names that others use too, is named."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT


def python(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code as a program in that folder, whose own folder comes first on the path."""
    (folder / "program.py").write_text(code)
    return subprocess.run(
        [sys.executable, *options, folder / "program.py"],
        env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("file", ["journal.py", "journal/__init__.py"])
@pytest.mark.parametrize("before", ["", "import journal\n"], ids=["", "imported"])
def test_another_journal_in_the_place_of_ours_is_named(tmp_path, file, before):
    """Seen as ``No module named 'journal.errors'; 'journal' is not a package``, three files down."""
    hiding = tmp_path / file
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    ran = python(tmp_path, f"{before}import txbroker")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: {hiding} hides the package journal that txbroker stands on; nothing of"
    )
    assert "Rename it" in last


@pytest.mark.slow
def test_another_spark_in_the_place_of_ours_is_named_and_all_else_works(tmp_path):
    hiding = tmp_path / "spark.py"
    hiding.write_text("")
    ran = python(tmp_path, "import txbroker; txbroker.connect; print('works')")
    assert ran.stdout == "works\n"
    assert f"RuntimeWarning: {hiding} hides the package spark of txbroker" in ran.stderr


def test_ours_are_told_from_others_without_importing_spark(tmp_path):
    ran = python(
        tmp_path,
        "import sys, txbroker; print([n for n in ('spark', 'pyspark') if n in sys.modules])",
        "-Werror",
    )
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_they_are_known_in_an_archive_of_zip_too(tmp_path):
    import zipfile

    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as into:
        for package in ("journal", "txbroker", "spark"):
            for path in (ROOT / package).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    into.write(path, path.relative_to(ROOT))
    ran = subprocess.run(
        [sys.executable, "-Werror", "-c", "import txbroker; print(txbroker.__file__)"],
        env={"PYTHONPATH": str(archive)}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout.startswith(str(archive)), ran.stderr
