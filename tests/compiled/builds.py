"""Both builds of each leaf in one process: Python's source, and what ``make compiled`` has compiled from it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from journal import compiled
from tests.support.repository import ROOT

INSTALLED = ROOT / ".make/compiled"
"""Where ``make compiled`` installs the checkout, compiled, for PYTHONPATH."""


class Builds(NamedTuple):
    """A leaf from its source, and compiled."""

    pure: ModuleType
    compiled: ModuleType


def compiled_folder() -> Path:
    """Return the folder of the compiled modules of this source; the test fails if there are none."""
    name = compiled.source_hash((name, (ROOT / name).read_bytes()) for name in compiled.source_files())
    folder = INSTALLED / compiled.PACKAGE / name
    if not folder.is_dir():
        pytest.fail("the leaves are not compiled, or from other source: run 'make compiled'", pytrace=False)
    return folder


def builds_of(name: str) -> Builds:
    """Return both builds of a leaf. Neither takes the place of the module that others import."""
    folder = compiled_folder()
    built = next(file for suffix in EXTENSION_SUFFIXES if (file := folder / (name + suffix)).is_file())
    source = ROOT / (name.replace(".", "/") + ".py")
    return Builds(
        _loaded(name, SourceFileLoader(name, str(source)), source),
        _loaded(name, ExtensionFileLoader(name, str(built)), built),
    )


def _loaded(name: str, loader: SourceFileLoader | ExtensionFileLoader, file: Path) -> ModuleType:
    spec = spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def outcome(call: Callable[..., object], *arguments: object) -> tuple[object, ...]:
    """Return what a call returns, or the type and text of its error and of that error's cause."""
    try:
        return "returned", call(*arguments)
    except Exception as error:  # noqa: BLE001  (whatever it is, it has to be the same in both builds)
        return "raised", type(error), str(error), type(error.__cause__)
