"""The command line, as ``txbroker`` and as ``python -m txbroker``; it names missing packages and how to install
them.
"""

from __future__ import annotations

import sys

from txbroker.missing_packages import what_to_install


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
