"""The number of examples that Hypothesis draws, by profile: all in `make test`, a share in `make check`."""

from hypothesis import settings

FULL = 100
"""Examples of a test that asks for no number of its own, where nothing is left out."""


def examples(full: int) -> int:
    """Return ``max_examples`` for a test that wants ``full`` of them, in the loaded profile."""
    return max(full * settings.default.max_examples // FULL, 2)
