"""Test the errors where the packages of the extra are missing."""

import os
import subprocess
import sys

import pytest

from tests.support.repository import PACKAGES, ROOT


@pytest.mark.sampled
@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "numpy"])
def test_a_package_that_is_missing_is_named_with_its_extra(package):
    code = f"import sys; sys.modules[{package!r}] = None; import spark"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ImportError: spark needs packages that are not installed here (")
    assert package in last
    assert last.endswith("pip install 'txbroker[spark]'")


@pytest.mark.slow
def test_where_one_is_missing_spark_still_finds_the_sources_of_others():
    code = "import sys; sys.modules['numpy'] = None; import pyspark_txbroker as p; print(hasattr(p, 'DefaultSource'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "False\n"
    assert "UserWarning: Spark does not find format('txbroker') by itself: spark needs packages" in ran.stderr


@pytest.mark.slow
def test_a_session_knows_the_source_without_being_told_and_may_be_told_nevertheless(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.session_program", str(tmp_path / "d")],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1:] == ["1 1"], ran.stderr[-3000:]
