"""The path of the repository, for tests that run its programs and read its documents."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
