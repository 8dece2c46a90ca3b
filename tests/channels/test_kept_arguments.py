"""Test arguments of queues that are no settings: they are kept, and the type is compared (decision 0058)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from journal.records.queue_entries import QueueSettings
from tests.channels.talk import House, Talker, declare
from txbroker.amqp.reply_codes import Reply
from txbroker.queues.kept_arguments import kept


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def talker(house) -> Talker:
    return house.talker()


MORE: Any = {
    "x-queue-type": "quorum", "x-queue-mode": "lazy", "x-more": {"a": [1, None, True, 0.5, b"\xff", Decimal("1.5")]},
    "x-empty": "",
}  # fmt: skip


def test_other_arguments_are_kept_over_starts_and_the_first_declaration_counts(house, talker):
    """Seen with none of them kept: a queue said of itself that it is a classic one, whatever was asked for."""
    for name, arguments in (
        ("q", {"x-max-length": 5, **MORE}),
        ("plain", {}),
        ("large", {"x-more": "x" * 4000}),
    ):
        talker.queue(name, arguments=arguments)
    talker.queue(arguments={"x-max-length": 5, "x-queue-type": "quorum", "x-others": 1})

    def told(name):
        return kept(house.broker.queues.listing.known(name).settings)

    for how in ("journal", "checkpoint", "checkpoint"):
        assert told("q") == MORE, how
        assert told("plain") == {}
        assert told("large") == {"x-more": "x" * 4000}
        house.engine.housekeeping.checkpoint_inline()
        house.restart()


@pytest.mark.parametrize(
    ("first", "again", "received"),
    [("quorum", "classic", "the value 'classic' of type 'longstr'"), ("quorum", None, "none"),
     ("classic", "quorum", "the value 'quorum' of type 'longstr'"),
     (None, "quorum", "the value 'quorum' of type 'longstr'")],
)  # fmt: skip
def test_a_queue_is_not_declared_again_as_one_of_another_type(talker, first, again, received):
    arguments = [{} if each is None else {"x-queue-type": each} for each in (first, again)]
    talker.queue(arguments=arguments[0])
    said = talker.refused(declare(arguments=arguments[1]), Reply.PRECONDITION_FAILED)
    assert (
        f"inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received {received} but current is"
        in said
    )
    assert f"the value '{first or 'classic'}' of type 'longstr'" in said
    talker.queue(arguments=arguments[0])


def test_the_usual_type_is_the_same_as_none_and_that_of_a_queue_of_another_protocol_is_not_known(
    house, talker
):
    talker.queue("usual", arguments={"x-queue-type": "classic"})
    talker.queue("usual")
    house.broker.queues.declarations.declare_queue("native", QueueSettings(), None)
    for kind in ("quorum", "classic"):
        talker.queue("native", arguments={"x-queue-type": kind})


def test_the_strategy_of_dead_letters_is_compared(talker):
    talker.queue(arguments={"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once"})
    said = talker.refused(declare(arguments={"x-overflow": "reject-publish"}), Reply.PRECONDITION_FAILED)
    assert "inequivalent arg 'x-dead-letter-strategy' for queue 'q' in vhost '/'" in said
    talker.queue("usual", arguments={"x-dead-letter-strategy": "at-most-once"})
    talker.queue("usual")
