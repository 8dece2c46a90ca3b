"""How the bytes of a journal record are made; ``record.py`` says what they are.

It is one of the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from journal.formats import octets
from journal.records.record_header import CRC_END

_encode_head = msgspec.msgpack.Encoder().encode


def pack(record: msgspec.Struct, data: bytes | memoryview, crc_seed: int) -> bytes:
    """Return header and head of a record; ``data`` follows them, it is only read for the checksum."""
    head = _encode_head(record)
    body = octets.pack_u32(len(head)) + head
    crc = crc32c(body, crc_seed)
    if data:
        crc = crc32c(data, crc)
    return octets.pack_two_u32(CRC_END + len(body) + len(data), crc) + body
