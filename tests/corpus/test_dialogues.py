"""Test that recorded dialogues are answered as recorded."""

import json

import pytest

from tests.corpus.dialogues import SETTINGS, perform, recorded
from tests.corpus.dialogues_drawn import script_of
from txbroker.wire import access, messages, queues, schedule

EVERY_TEST_RUN = 60
"""So many are played by `make test`; all of them by `make test-deep`."""


@pytest.fixture(scope="module")
def dialogues():
    return recorded()


def answered_as_recorded(dialogue):
    heard = json.loads(json.dumps(perform(dialogue["settings"], dialogue["script"])))
    moments = [*dialogue["script"], "what the archive holds in the end"]
    for moment, was, now in zip(moments, dialogue["heard"], heard, strict=True):
        assert now == was, f"dialogue {dialogue['seed']} at {moment}"


@pytest.mark.slow
def test_a_broker_answers_as_it_did_when_the_dialogues_were_recorded(dialogues):
    for dialogue in dialogues[:EVERY_TEST_RUN]:
        answered_as_recorded(dialogue)


@pytest.mark.deep
def test_a_broker_answers_as_it_did_in_all_dialogues(dialogues):
    for dialogue in dialogues[EVERY_TEST_RUN:]:
        answered_as_recorded(dialogue)


@pytest.mark.slow
def test_the_dialogues_have_every_request_and_all_that_they_can_be_refused_with(dialogues):
    """All kinds but hello and login, which are a moment of their own, what is about sessions, of which nothing is kept
    (tests/broker/sessions/test_session_list.py), what is about users and rules, which is for administrators, about
    the schedule (tests/broker/schedule, tests/simulation/schedule_steps.py) and about queues (tests/broker/queues,
    tests/queues); and errors of most kinds.
    """
    moments = [moment for dialogue in dialogues for moment in dialogue["script"]]
    asked = {
        kind for what, *reads in moments if what == "hear" for _, *requests in reads for kind, _ in requests
    }
    elsewhere = {
        name
        for module in (access, queues, schedule)
        for name, each in vars(module).items()
        if isinstance(each, type) and each.__module__ == module.__name__
    }
    kinds = {each.__name__ for each in messages.AnyRequest.__args__}
    assert asked == kinds - {"Hello", "Login", "ListSessions", "CloseSession"} - elsewhere
    told = [
        entry[2]
        for dialogue in dialogues
        for heard in dialogue["heard"][:-1]
        for entry in heard
        if len(entry) == 3
    ]
    kinds = {each.__name__ for each in messages.AnyAnswer.__args__}
    assert {kind for kind, *_ in told} == kinds - {"GoingAway", "Sessions", "Challenge"} - elsewhere
    assert len({fields["error"] for kind, *rest in told if kind == "Refused" for fields in rest}) >= 20
    assert {dialogue["settings"] for dialogue in dialogues} == set(range(len(SETTINGS)))


def test_a_script_is_drawn_from_its_seed():
    assert script_of(7) == script_of(7)
    assert script_of(7) != script_of(8)
