"""How many examples Hypothesis draws: all of them in `make test`, a share in `make check`, more in search of new."""

from hypothesis import settings

FULL = 100
"""Examples of a test that asks for no number of its own, where nothing is left out."""


def examples(full: int) -> int:
    """What a test takes for ``max_examples`` that wants ``full`` of them, in the profile that is loaded."""
    return max(full * settings.default.max_examples // FULL, 2)
