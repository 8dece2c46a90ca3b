"""Limits and sizes, with the relations between them asserted.

Sizes are in bytes, times in microseconds unless a name says otherwise.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

BLOCK = 4 * KIB
"""Journal groups start on a multiple of this. Only at such boundaries can a reader resynchronise."""

MAX_FRAME = 16 * MIB
"""Default largest frame (a message, or a wrapper with its messages), header included."""

MAX_REQUEST_DATA = 16 * MIB
"""Most message bytes of one request, hence of one journal record."""

MAX_REQUEST_MESSAGES = 4096
"""Most messages of one request to a broker, however they are wrapped.

Each is checked by itself, in one turn, while all other clients wait: 5 ms of the smallest, and 0.5 s without a bound.
"""

MAX_REQUEST_ENTRIES = 4096
"""Most partitions, positions or names that one request to a broker may list: all are judged in one turn, as above."""

MAX_OPENED_HEADS = 512 * KIB
"""Most bytes, uncompressed, of one request's compressed frames that are no values: headers, keys and message headers.

They are checked one by one, at 30 to 60 ms a MiB, and a few KiB on the wire can hold any number of them.
"""

OPENED_FRAME = 256
"""What each compressed frame adds to that, beside its contents: opening the smallest takes 8 µs."""

GROUP_BYTES = 4 * MIB
"""A group is cut at this size; one record that is larger makes a group of its own."""

GROUP_RECORDS = 65_536
"""A group is cut at this many records, so that publishing one never holds the reactor for long."""

JOURNAL_FILE_BYTES = 64 * MIB
"""Default size of a journal file: zero-filled ahead of need, recycled by rename."""

SEGMENT_BYTES = 256 * MIB
"""Default size at which a partition's log rolls to a new segment."""

START_STRIDE = 1 << 36
"""Every start of the engine begins at the next multiple of this LSN, so no LSN is ever used twice."""

MAX_TOPIC_NAME = 200
MAX_PARTITIONS_PER_TOPIC = 10_000
MAX_GLOBAL_ID = 64
MAX_BRANCH_ID = 64
MAX_ATTRIBUTE = 1 * MIB
"""Most bytes of a message's key and headers together, encoded."""

RUNS_REMEMBERED = 64
"""Runs kept of a producer in a partition. Part of the fold's meaning: changing it changes the result of a replay."""

RESTORED_STARTS = 1 << 16
"""How many numbers of starts a restore leaves out, and as many strides of LSNs: more than the lost time line can have
used."""

STARTS_KEPT = 4096
"""Newest starts whose nonces are kept: an hour of starting once a second, 90 KB of a checkpoint. Part of the fold's
meaning, as above."""

SLICED_COMMIT_BYTES = 16 * MIB
"""A commit of more bytes than this is copied to its partitions in slices."""

MESSAGE_WEIGHT = 1024
"""Bytes that a message counts for beside its own when it is appended to a log: it is stamped by itself, 0.2 µs."""

INDEX_INTERVAL_BYTES = 16 * KIB
"""A sparse index has one entry for about this many bytes of log."""

CHECKPOINT_JOURNAL_BYTES = 256 * MIB
CHECKPOINT_INTERVAL = 60_000_000
IDLE_MARK_AFTER = 100_000
"""After this much idleness a MARK record is forced, which proves that all before it was forced."""

EARLIEST_TIME = 10**14
"""µs since 1970: 1973-03-03. A smaller time is one in seconds or milliseconds by mistake; no message is so old."""

assert BLOCK & (BLOCK - 1) == 0
assert GROUP_BYTES % BLOCK == 0
assert MAX_FRAME <= MAX_REQUEST_DATA
assert MAX_REQUEST_DATA + 2 * BLOCK < JOURNAL_FILE_BYTES, "the largest record fits into a journal file"
assert JOURNAL_FILE_BYTES < SEGMENT_BYTES * 4
assert MAX_REQUEST_DATA <= SEGMENT_BYTES
assert MAX_ATTRIBUTE < MAX_FRAME
