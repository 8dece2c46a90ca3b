"""The path of the repository, for tests that run its programs and read its documents."""

import os
from pathlib import Path

import txbroker

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_INSTALLED = Path(txbroker.__file__).resolve().parents[1]
PACKAGES = str(ROOT) if _INSTALLED == ROOT else os.pathsep.join((str(_INSTALLED), str(ROOT)))
"""PYTHONPATH for the programs that a test starts: they import what the test has imported, the checkout or what
``make compiled`` has installed.
"""
