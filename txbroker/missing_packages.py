"""What to install for a package that a command needs and that is missing."""

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
"""What to install for the packages that commands use and a client does without."""


def what_to_install(error: ModuleNotFoundError) -> str:
    """What brings the package that is missing; "" if nothing of this project does."""
    return PROVIDED_BY.get((error.name or "").partition(".")[0], "")
