"""The fixtures of all tests: a bound on memory, real databases, loggers left as they were, and the profiles of
Hypothesis.

`ci`, the default, draws the same examples on every run, so that a red test is red for everyone. `check` draws a tenth
of them, for `make check`. `dev` looks for new ones: `.venv/bin/python -m pytest --hypothesis-profile dev`. Tests that
want more or fewer than others say so through :func:`tests.support.thoroughness.examples`.
"""

import gc
import os
import resource
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.loggers import left_as_found
from tests.support.thoroughness import FULL

pytest_plugins = [
    "tests.databases.fixtures",
    "tests.support.runs.quick_collection",
    "tests.support.runs.sampling",
    "tests.support.runs.slowest_files",
    "tests.support.runs.spark_first",
]

# What several test files assert through: without this a failure there says no values.
pytest.register_assert_rewrite(
    "tests.support.damage.damage_scene",
    "tests.engine.engine_machine",
    "tests.engine.engine_steps",
    "tests.support.filesystem_conformance",
)


@pytest.fixture(autouse=True)
def loggers_left_as_found():
    """No test silences the ones after it, whatever their order."""
    with left_as_found():
        yield


@pytest.fixture
def coroutines_gone():
    """Coroutines that were interrupted before their first step go while this test lets them. One that a traceback holds
    would go some time later, in a test that knows nothing of it and fails.
    """
    yield
    gc.collect()


# A shell that runs the tests in the background has them ignore Ctrl-C, and every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test that runs away ends with a MemoryError of its own, not with the machine's.
_GIGABYTE = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (8 * _GIGABYTE, resource.getrlimit(resource.RLIMIT_AS)[1]))

# Two workers on two busy cores make any deadline, and any judgement of slowness, a coin toss.
settings.register_profile(
    "ci",
    max_examples=FULL,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("check", settings.get_profile("ci"), max_examples=FULL // 10)
settings.register_profile(
    "dev",
    max_examples=10 * FULL,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def leaves_few_descriptors_open():
    """A hundred left open by one test are missing in another, hours of searching away."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) < before + 30, "close what the test opens"
