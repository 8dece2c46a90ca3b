"""What is said where the packages of the extra are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
