"""The package to install for a missing one that a command needs."""

from __future__ import annotations

from typing import Final

PROVIDED_BY: Final = {
    "click": "txbroker[cli]",
    "rich": "txbroker[cli]",
    "crcmod": "txbroker[cli]",
    "jinja2": "txbroker[cli]",
    "markupsafe": "txbroker[cli]",
    "twisted": "txbroker[server]",
}
"""The packages to install for those that commands use and a client does not need."""


def what_to_install(error: ModuleNotFoundError) -> str:
    """Return what installs the missing package; "" if no extra of this project does."""
    return PROVIDED_BY.get((error.name or "").partition(".")[0], "")
