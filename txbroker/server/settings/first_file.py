"""The settings file that ``txbroker init`` writes: what is set and what one may want to set, with a word about each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

_TEXT: Final = """\
# Settings of a txbroker: 'txbroker serve --config FILE' reads them, and what is on its command line wins.
# 'txbroker config check FILE' says whether a broker could be started with them, 'txbroker config show FILE --all' lists
# every setting there is. Durations have a unit ("30s", "1h30m"); sizes are bytes or have one ("64MiB"): both in quotes.

# The directory that holds everything: of one broker, on a disk of this machine.
data = {data}

# Where clients come in: Twisted endpoints. Without interface= it is every interface; over a network use TLS:
# listen = ["tls:7654:cert=/etc/txbroker/broker.pem:key=/etc/txbroker/broker.key"]
listen = {listen}

# The same for clients of AMQP 0-9-1, as RabbitMQ's and Celery.
# listen_amqp = ["tcp:5672:interface=127.0.0.1"]

# Health and metrics: /livez, /readyz and /metrics, for whoever is on this machine. Others need a token, and TLS.
http = ["tcp:7655:interface=127.0.0.1"]
# http_token_file = "/etc/txbroker/http.token"

# The log goes to standard output. For who collects lines of JSON, or for a file of its own:
# log_format = "json"
# log_level = "info"
# log_file = "/var/log/txbroker/broker.log"

# Who logged in, was refused and changed what: a file, not among the data, or "-" for standard output.
# audit = "/var/log/txbroker/audit.json"

# Memory for messages on their way to their files, and for open transactions.
# pool_bytes = "256MiB"

# How much journal a start has to replay at most: 256 MiB take 1 to 3 s, small transactions 8 s.
# checkpoint_bytes = "256MiB"

# How long a stop may take. What supervises the broker must wait 15 s longer before it kills it.
# stop_timeout = "30s"

# How many clients there may be.
# max_sessions = 20000

# Whether every transaction's outcome is kept, for questions years later and for audits.
# outcome_archive = "off"
"""


def text_of(data: str, listen: Sequence[str]) -> str:
    """Return the file for a directory of the data, by its whole path, and endpoints for clients."""
    return _TEXT.format(data=_quoted(data), listen=f"[{', '.join(map(_quoted, listen))}]")


def _quoted(text: str) -> str:
    """Return a basic string of TOML: JSON's, which leaves but one character as it is that TOML does not allow."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
