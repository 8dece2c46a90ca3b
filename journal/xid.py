"""The name of a global transaction's branch, as in XA and PEP 249."""

from __future__ import annotations

import msgspec


class Xid(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A global transaction's branch, as in XA and PEP 249. Equality is by all three parts.

    As PEP 249 asks, ``xid[0]`` is the format id, ``xid[1]`` the global id, ``xid[2]`` the branch.
    """

    format_id: int
    global_id: bytes
    branch: bytes

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int | bytes:
        return (self.format_id, self.global_id, self.branch)[index]

    def __str__(self) -> str:
        return f"{self.format_id}:{readable(self.global_id)}:{readable(self.branch)}"


def readable(part: bytes) -> str:
    """Return a part of an xid for people: as text if it is printable ASCII, else ``0x`` and hex."""
    text = part.decode("ascii", "replace")
    if text.isascii() and text.isprintable() and ":" not in text and not text.startswith("0x"):
        return text
    return "0x" + part.hex()
