"""Test the errors where the packages of an extra are missing."""

import subprocess
import sys

import pytest

from tests.support.repository import ROOT


@pytest.mark.parametrize("module", ["txbroker.client.twisted", "txbroker.databases.twisted"])
def test_a_module_for_twisted_names_the_extra_that_brings_it(module):
    code = f"import sys; sys.modules['twisted'] = None; import {module}"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {module} needs Twisted, which is not installed (")
    assert last.endswith("pip install 'txbroker[twisted]'")
