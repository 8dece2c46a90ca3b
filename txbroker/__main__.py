"""The command line, as ``txbroker`` and as ``python -m txbroker``; names what to install where it is missing."""

from __future__ import annotations

import sys
from typing import Final

PROVIDED_BY: Final = {
    "click": "txbroker[cli]",
    "rich": "txbroker[cli]",
    "crcmod": "txbroker[cli]",
    "twisted": "txbroker[server]",
}
"""What to install for the packages that commands use and a client does without."""


def what_to_install(error: ModuleNotFoundError) -> str:
    """What brings the package that is missing; "" if nothing of this project does."""
    return PROVIDED_BY.get((error.name or "").partition(".")[0], "")


def main() -> None:
    """Run the command line; exit status 2 if a package is missing that the command needs."""
    try:
        from txbroker.cli import main as command_line

        command_line()
    except ModuleNotFoundError as error:
        install = what_to_install(error)
        if not install:
            raise
        missing = str(error.name).partition(".")[0]
        sys.stderr.write(
            f"Error: this command needs the package {missing}, which is not installed; nothing was done. "
            f"Install it with: pip install '{install}'\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
