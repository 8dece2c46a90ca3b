"""A check that the packages ``journal`` and ``spark`` are those of this project: others have these names, too."""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from os.path import join
from typing import Final

MARKER: Final = "part_of_txbroker"
"""A file that this project's packages hold, so that they are recognised without being imported."""


def check_neighbours() -> None:
    """Raise ImportError if ``import journal`` gives another package, and warn if ``import spark`` does; takes
    0.1 ms.
    """
    if hidden := foreign("journal"):
        raise ImportError(
            f"{hidden} hides the package journal that txbroker stands on; nothing of txbroker was imported. Rename it, "
            "or take its folder off sys.path (a program's own folder comes first there)"
        )
    if hidden := foreign("spark"):
        warnings.warn(
            f"{hidden} hides the package spark of txbroker, its data source for Apache Spark; all else works. Rename "
            "it, or ignore this warning if you do not use that",
            RuntimeWarning,
            stacklevel=3,
        )


def foreign(name: str) -> str:
    """Return the file or folder that is imported by a name and is not this project's; "" if there is none."""
    module = sys.modules.get(name)
    spec = find_spec(name) if module is None else module.__spec__
    if spec is None:
        return "" if module is None else str(getattr(module, "__file__", None) or module)
    return "" if _is_ours(spec) else spec.origin or ", ".join(spec.submodule_search_locations or [name])


def _is_ours(spec: ModuleSpec) -> bool:
    read = getattr(spec.loader, "get_data", None)  # files and zip archives have it
    if read is None:
        return False
    for folder in spec.submodule_search_locations or []:
        try:
            read(join(folder, MARKER))
        except OSError:
            continue
        return True
    return False
