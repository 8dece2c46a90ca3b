"""Topics that take smaller messages than before: batches fit from the next send on."""

import pytest
from msgspec import structs

from journal.settings import TopicSettings
from tests.client.rig import Rig, add
from txbroker import errors
from txbroker.wire.messages import Add, Commit, Refused, Send

LIMIT = 1000


def lower(broker):
    """Have the topics take frames of at most ``LIMIT`` bytes from now on."""
    describe = type(broker).on_describetopics

    def before(request, data):
        if type(request) in (Send, Add, Commit) and len(data) > LIMIT:
            return Refused(request.correlation, "MessageTooLarge", "the limit is lower now")
        return None

    def described(session, request, data):
        answer = describe(broker, session, request, data)
        lowered = [structs.replace(t, settings=TopicSettings(max_message_bytes=LIMIT)) for t in answer.topics]
        return structs.replace(answer, topics=lowered)

    broker.before, broker.on_describetopics = before, described


def test_after_a_refusal_batches_are_as_large_as_the_topic_allows_now(broker):
    rig = Rig(broker, linger=0.01)
    rig.send(b"warm")
    rig.wait(1)
    lower(broker)
    large = [rig.send(bytes(200))[0] for _ in range(10)]
    rig.wait(1)
    for batch in large:
        with pytest.raises(errors.MessageTooLarge):
            batch.result()
    small = [rig.send(bytes(200))[0] for _ in range(10)]
    rig.wait(1)
    assert sorted({batch.base_offset for batch in small}) == [1, 5, 9]


def test_after_a_refusal_the_same_transaction_succeeds_anew(rig, broker):
    rig.send(b"warm")
    rig.pump()
    lower(broker)

    def transaction():
        begun = rig.transaction()
        for _ in range(10):
            rig.run(add(begun, bytes(200)))
        rig.run(begun.commit())

    with pytest.raises(errors.MessageTooLarge):
        transaction()
    broker.before = lambda request, data: None  # a commit has several frames, all small enough
    transaction()
    asked = [request for request in broker.requests if type(request) in (Add, Commit)]
    assert [type(request) for request in asked] == [Commit, Add, Add, Commit]
