"""Run the fast tests in several processes: ``python -m tests.support.runs.shares 2 OPTIONS``, with options of pytest.

Each process is a pytest of its own that collects and runs a share of the files. A worker of pytest-xdist collects all
tests, and sends six messages about each that it runs, which takes longer than half of the fast tests do. The files are
dealt out by what they took the last time (``slowest_files.py``); by their sizes where that is not known.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import pytest

from tests.support.repository import ROOT
from tests.support.runs.slowest_files import KEPT

NO_FAST = re.compile(r"^pytestmark = (?:pytest\.mark\.(?:slow|deep|foreign)|INTERRUPTED)$", re.MULTILINE)
ELSEWHERE = ROOT / "tests/amqp/foreign/test_clients.py"
"""It imports what is not installed here. Its conftest says so, but is not asked about a file that is named."""

CACHES = ".pytest_cache/share"


def fast_files(root: Path = ROOT) -> list[str]:
    """Return the test files but those that say of all their tests that they are slow: these are not even imported."""
    files = sorted(set((root / "tests").rglob("test_*.py")) - {ELSEWHERE})
    return [file.relative_to(root).as_posix() for file in files if not NO_FAST.search(file.read_text())]


def weights(files: Iterable[str], seconds: Mapping[str, float], root: Path = ROOT) -> dict[str, float]:
    """Return for each file the seconds it took, or would take at the average of a byte."""
    sizes = {file: (root / file).stat().st_size for file in files}
    known = {file: seconds[file] for file in sizes if file in seconds}
    of_a_byte = sum(known.values()) / sum(sizes[file] for file in known) if known else 1.0
    return {file: known.get(file, size * of_a_byte) for file, size in sizes.items()}


def dealt(weights: Mapping[str, float], shares: int) -> list[list[str]]:
    """Deal the files out, the heaviest first, each to the share that has the least."""
    found: list[list[str]] = [[] for _ in range(shares)]
    given = [0.0] * shares
    for file in sorted(weights, key=lambda file: (-weights[file], file)):
        least = given.index(min(given))
        found[least].append(file)
        given[least] += weights[file]
    return [sorted(files) for files in found]


def last_seconds(root: Path = ROOT) -> dict[str, float]:
    """Return what the files took in the last run."""
    found: dict[str, float] = {}
    for kept in root.glob(f"{CACHES}-*/v/{KEPT}"):
        found |= json.loads(kept.read_text())
    return found


def run(shares: int, options: Sequence[str], root: Path = ROOT) -> int:
    """Run all shares at once; show the first while it runs, then the others. Return the exit code of one that failed.

    Where the options name files, only these are run, in one process.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *options]
    if any((root / option.partition("::")[0]).exists() for option in options):
        return subprocess.run(command, cwd=root, check=False).returncode
    first, *others = [
        [*command, "-o", f"cache_dir={CACHES}-{number}", *files]
        for number, files in enumerate(dealt(weights(fast_files(root), last_seconds(root), root), shares))
    ]
    with tempfile.TemporaryFile() as said:
        running = [subprocess.Popen(other, stdout=said, stderr=said, cwd=root) for other in others]
        codes = {subprocess.run(first, cwd=root, check=False).returncode, *(each.wait() for each in running)}
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    if len(codes) > 1:  # a share may have none of the tests that -k means
        codes -= {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    return max(codes, default=0)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("shares", type=int)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(shares: int, options: tuple[str, ...]) -> None:
    """Run the fast tests in so many processes, with these options of pytest."""
    sys.exit(run(shares, options))


if __name__ == "__main__":
    main()
