"""Random ids. A name may come again with another thing behind it; an id does not."""

from __future__ import annotations

import secrets
from typing import Final

ID_BYTES: Final = 16


def new_id() -> bytes:
    """Return 16 random bytes, which nobody can guess and nothing else has."""
    return secrets.token_bytes(ID_BYTES)
