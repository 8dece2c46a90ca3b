"""Test the options for a retry policy, its sentence, and that the processes of ``work`` get what their parent was told.

Seen to fail: with an option left out of ``command_words``, with what is not said taken as usual instead of as before.
"""

from types import SimpleNamespace

import click
import pytest

from txbroker import RetryPolicy
from txbroker.cli.commands.work import command_words, work
from txbroker.cli.retry_options import policy_in, policy_text

NOTHING = {
    "attempts": None,
    "pause": None,
    "longest": None,
    "ending": None,
    "dead_letter_topic": None,
    "no_retry": False,
}
BEFORE = RetryPolicy(7, 0.5, 60.0, "stop")


@pytest.mark.parametrize(
    ("said", "before", "policy"),
    [
        ({}, None, None),
        ({}, BEFORE, None),
        ({"no_retry": True}, BEFORE, None),
        ({"attempts": 3}, None, RetryPolicy(3)),
        ({"pause": 1}, None, RetryPolicy(pause=1e-6)),
        ({"pause": 0, "longest": 0}, None, RetryPolicy(pause=0, longest=0)),
        ({"attempts": 3}, BEFORE, RetryPolicy(3, 0.5, 60.0, "stop")),
        ({"pause": 250_000}, BEFORE, RetryPolicy(7, 0.25, 60.0, "stop")),
        ({"longest": 3_600_000_000}, BEFORE, RetryPolicy(7, 0.5, 3600.0, "stop")),
        ({"ending": "drop"}, BEFORE, RetryPolicy(7, 0.5, 60.0, "drop")),
        ({"dead_letter_topic": "x.dead"}, None, RetryPolicy(dead_letter_topic="x.dead")),
        ({"dead_letter_topic": "x.dead"}, BEFORE, RetryPolicy(7, 0.5, 60.0, "stop", "x.dead")),
        ({"dead_letter_topic": ""}, BEFORE._replace(dead_letter_topic="x.dead"), BEFORE),
    ],
)
def test_what_is_not_said_is_as_before_or_as_usual(said, before, policy):
    assert policy_in(NOTHING | said, before) == policy


@pytest.mark.parametrize(
    "said",
    [{"attempts": 3}, {"pause": 0}, {"longest": 0}, {"ending": "stop"}, {"pause": 0, "ending": "drop"}],
)
def test_no_retry_goes_with_no_other_option(said):
    with pytest.raises(click.UsageError, match=rf"^say --no-retry, or --{next(iter(said))}$"):
        policy_in(NOTHING | said | {"no_retry": True})


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, "A message that fails comes again when its program says so."),
        (
            RetryPolicy(),
            "A message that fails comes again after 1 s, then after "
            "twice as long each time, up to 300 s. After 5 attempts it goes to the dead letters.",
        ),
        (
            RetryPolicy(20, 0.25, 3600, "drop"),
            "A message that fails comes again after 0.25 s, then after "
            "twice as long each time, up to 3600 s. After 20 attempts it is finished.",
        ),
        (
            BEFORE,
            "A message that fails comes again after 0.5 s, then after "
            "twice as long each time, up to 60 s. After 7 attempts it waits for an operator.",
        ),
    ],
)
def test_a_policy_is_a_sentence(policy, text):
    assert policy_text(policy) == text


def chosen(*words):
    """What ``work`` is told by these words, as its processes get it."""
    with work.make_context("work", list(words)) as context:
        params = dict(context.params)
    return {name: params[name] for name in params if name not in ("processes", "is_child")}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--no-retry",),
        ("--attempts", "3"),
        ("--pause", "0"),
        ("--pause", "250ms", "--longest", "1h30m"),
        ("--ending", "drop"),
        ("--dead-letter-topic", "x.dead"),
        ("--commit-interval", "250ms"),
        ("--attempts", "9", "--pause", "1s", "--longest", "2s", "--ending", "dead_letter"),
        ("--topic", "p", "--concurrency", "8", "--order", "none", "--batch", "7", "--transaction"),
        ("--database", "sqlite:///x.db", "--on-start", "a:b", "--on-stop", "c:d", "--stop-timeout", "7ms"),
    ],
)
def test_each_process_of_work_gets_what_the_command_was_told(words):
    told = chosen("tasks:bill", "--topic", "t", "--group", "g", *words, "--processes", "2")
    command = command_words(SimpleNamespace(broker="tcp:127.0.0.1:1", timeout=5), told)
    assert command[1:4] == ["-m", "txbroker", "work"]
    passed_on = [
        word for word in command[4:] if word not in ("--broker", "tcp:127.0.0.1:1", "--timeout", "5us")
    ]
    assert chosen(*passed_on) == told
