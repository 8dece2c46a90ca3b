"""The log of ``txbroker work``, on stderr."""

from __future__ import annotations

import logging
import sys

from txbroker.cli.invocation import no_notes


def log_to_stderr() -> None:
    """Have all that is logged from INFO on written to stderr, unless the handler's module has set up logging itself."""
    no_notes()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
    )
