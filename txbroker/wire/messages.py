"""Every message of the wire protocol, typed. ``docs/wire_protocol.md`` explains them with worked bytes.

A head is a msgpack array ``[tag, correlation, field, ...]``. Fields may be appended in later versions with a
default; their order and meaning never change. Requests may be pipelined without limit; an answer carries its
request's correlation number, and answers may come in another order than their requests. Frames travel in the
data part, as they will lie on disk.

Times are µs: ``at`` and ``age`` journal time, ``wall`` and what is said to be of the wall clock since
1970 UTC. Offsets ``end`` and ``high_watermark`` are exclusive.
"""

from __future__ import annotations

from txbroker.wire.access import *  # noqa: F403
from txbroker.wire.answers import *  # noqa: F403
from txbroker.wire.any_answer import *  # noqa: F403
from txbroker.wire.any_request import *  # noqa: F403
from txbroker.wire.delivery import *  # noqa: F403
from txbroker.wire.login import *  # noqa: F403
from txbroker.wire.parked_offsets import *  # noqa: F403
from txbroker.wire.queues import *  # noqa: F403
from txbroker.wire.requests import *  # noqa: F403
from txbroker.wire.schedule import *  # noqa: F403
from txbroker.wire.sessions import *  # noqa: F403
from txbroker.wire.streams import *  # noqa: F403
from txbroker.wire.topics import *  # noqa: F403

MAGIC = "txbroker"
VERSIONS = (3, 4)
"""The protocol versions this code speaks."""

LENGTH_BYTES = 4
"""Bytes of each length of a message."""

OVERHEAD = 8
"""Bytes of a message's lengths that its total counts, beside head and data."""

MAX_HEAD = 1 << 20
"""Most bytes of a request's head."""

MAX_ANSWER_HEAD = 16 << 20
"""Most bytes of an answer's head: the description of 100,000 partitions takes about 5 MB."""
