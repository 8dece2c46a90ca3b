"""Random ids. A name may be used again for another thing; an id is never used again."""

from __future__ import annotations

import secrets
from typing import Final

ID_BYTES: Final = 16


def new_id() -> bytes:
    """Return 16 random bytes, which cannot be guessed and which nothing else has."""
    return secrets.token_bytes(ID_BYTES)
