"""The marks of tests that raise an exception at any line of a call, as a signal's handler does."""

import pytest

INTERRUPTED = [
    pytest.mark.slow,
    # An exception may come between the making of a coroutine and its first step.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("coroutines_gone"),
]
