"""The choice between Python's source and modules that were compiled from it: which of the two a process runs.

The distribution ``txbroker-compiled`` holds modules compiled from this source, in a folder that is named after a hash
of the source. If it is installed, they are imported in the place of their source: all of them or none.
``docs/decisions/0049-compiled-leaves.md`` gives the reasons.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import Final

LEAVES: Final = (
    "journal.formats.frame_check",
    "journal.formats.frame_stamp",
    "journal.records.record_bytes",
    "journal.recovery.record_cuts",
    "journal.vfs.forcing",
    "txbroker.wire.framing",
)
"""The modules that are compiled. The ``.pxd`` beside each gives the types of its variables."""

LAYOUTS: Final = (
    "journal.formats.frame_header",
    "journal.formats.octets",
    "journal.records.record_header",
    "journal.vfs.force_calls",
)
"""Modules whose functions the ``.pxd`` beside them has in C. It is compiled into the leaves; they themselves are not.
"""

PACKAGE: Final = "txbroker_compiled"
SWITCH: Final = "TXBROKER_PURE"
"""The environment variable that has a process run Python's source: any value but ``0`` and nothing."""

HASH_DIGITS: Final = 32


class Build(Enum):
    """What a process runs; the value is what ``txbroker status`` shows."""

    COMPILED = "compiled"
    NOT_INSTALLED = "pure Python (txbroker-compiled is not installed)"
    SWITCHED_OFF = "pure Python (TXBROKER_PURE is set)"


class BuildMismatch(ImportError):
    """The compiled modules that are installed are of other source, or for another Python. Nothing was imported."""


def source_files() -> list[str]:
    """Return the files that decide what the compiled modules are, as paths below the folder of the packages."""
    stems = [name.replace(".", "/") for name in (*LEAVES, *LAYOUTS)]
    return [stem + suffix for stem in stems for suffix in (".py", ".pxd")]


def source_hash(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the name of the folder that holds what is compiled from these files, each a name and its contents."""
    found = sha256()
    for name, contents in files:
        found.update(b"%s %d\n%s" % (name.encode(), len(contents), contents))
    return found.hexdigest()[:HASH_DIGITS]


class _Finder(MetaPathFinder):
    """Finds the compiled modules, before the source of the same name is looked for."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where a leaf's compiled module is, None for every other module."""
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def choose() -> Build:
    """Have the leaves imported compiled if they are installed and not switched off; return which it is.

    Called once, before the first of them is imported; takes 0.3 ms if they are installed. Raises
    :class:`BuildMismatch`.
    """
    if os.environ.get(SWITCH, "") not in ("", "0"):
        return Build.SWITCHED_OFF
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return Build.NOT_INSTALLED
    folder = os.path.join(spec.submodule_search_locations[0], source_hash(_sources()))
    files = {name: found for name in LEAVES if (found := _extension(folder, name))}
    if missing := sorted({*LEAVES} - {*files}):
        raise _mismatch(spec.submodule_search_locations[0], folder, missing)
    sys.meta_path.insert(0, _Finder(files))
    return Build.COMPILED


def _sources() -> Iterable[tuple[str, bytes]]:
    """Return the source that is installed; what cannot be read counts as empty, hence as other source."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in source_files():
        try:
            yield name, __loader__.get_data(os.path.join(root, *name.split("/")))  # type: ignore[name-defined]
        except OSError:
            yield name, b""


def _extension(folder: str, name: str) -> str:
    found = (os.path.join(folder, name + suffix) for suffix in EXTENSION_SUFFIXES)
    return next(filter(os.path.isfile, found), "")


def _mismatch(package: str, folder: str, missing: list[str]) -> BuildMismatch:
    if not os.path.isdir(folder):
        what = "were compiled from other source than the Python files beside which they are installed"
    else:
        what = f"are not for this Python, {sys.version.split()[0]}, or are not whole ({', '.join(missing)})"
    return BuildMismatch(
        f"the compiled modules in {package} {what}. Nothing was imported: they might do something else than the source "
        "that is read here. Install txbroker and txbroker-compiled anew, both of one version, or remove "
        f"txbroker-compiled, or set {SWITCH}=1 to run the Python source, which is slower",
        name=PACKAGE,
        path=package,
    )
