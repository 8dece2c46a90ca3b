"""Copies of the sources in which faults are made on purpose, one at a time, and programs that run on such a copy."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.repository import ROOT


class Fault(Protocol):
    """A fault: in the file ``path``, ``new`` stands where ``old`` should."""

    name: str
    path: str
    old: str
    new: str


def copy_sources(target: Path, names: Iterable[str]) -> None:
    """Copy these files and folders of the repository, to be changed at will."""
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)


def mutated(source: str, fault: Fault) -> str:
    """Return the source with the fault; raises ``ValueError`` if the line is not there exactly once any more."""
    if source.count(fault.old) != 1:
        raise ValueError(
            f"{fault.name!r}: {fault.path} has {source.count(fault.old)} times {fault.old!r}; find its new place"
        )
    return source.replace(fault.old, fault.new)


def check_can_be_made(fault: Fault) -> None:
    """Fail unless the fault changes its file, and leaves it Python."""
    source = (ROOT / fault.path).read_text()
    made = mutated(source, fault)
    assert made != source
    ast.parse(made)


@contextmanager
def faulty(copy: Path, fault: Fault) -> Iterator[None]:
    """Have the fault in the copy while the block runs."""
    path = copy / fault.path
    source = path.read_text()
    path.write_text(mutated(source, fault))
    try:
        yield
    finally:
        path.write_text(source)


def run_python(copy: Path, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy's sources; raises ``TimeoutExpired`` after ``seconds``."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip


def passes(copy: Path, *tests: str, seconds: float) -> bool:
    """Return whether these tests of the copy pass within ``seconds``: a fault may keep them from their end."""
    arguments = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
    try:
        return not run_python(copy, *arguments, seconds=seconds).returncode
    except subprocess.TimeoutExpired:
        return False


def says_sound(copy: Path, ran: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a program that printed the path of a module first, which must be the copy's, ended with
    ``sound``.
    """
    used, *rest = ran.stdout.splitlines() or [ran.stderr]
    assert used.startswith(str(copy)), used
    return rest[-1:] == ["sound"]
