"""Test the broker's AMQP 0-9-1 by the tests of clients that others wrote, each suite in a process of its own.

``make test-amqp`` runs them; what does not pass is named in left_out/, with the reason.
"""

from contextlib import ExitStack

import pytest

from tests.amqp.foreign.brokers import CHOSEN, amqp_broker, redis_server
from tests.amqp.foreign.left_out import expectation
from tests.amqp.foreign.suites import SUITES, Suite, run_go

pytestmark = pytest.mark.foreign


def fulfilled(name: str, outcomes: dict[str, str]) -> None:
    complaints = expectation(name, CHOSEN).complaints(outcomes)
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_tests_of_a_client_in_python_pass_but_those_left_out(suite: Suite, tmp_path):
    with ExitStack() as running:
        port = running.enter_context(amqp_broker(tmp_path))
        redis = running.enter_context(redis_server(tmp_path)) if suite.wants_redis else 0
        outcomes = suite.run(tmp_path, port, redis)
    fulfilled(suite.name, outcomes)


def test_the_tests_of_the_client_in_go_pass_but_those_left_out(tmp_path):
    with amqp_broker(tmp_path) as port:
        outcomes = run_go(tmp_path, port)
    fulfilled("amqp091-go", outcomes)
