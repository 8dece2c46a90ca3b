"""The parts of a broker that are about queues, made and made known to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.folds.groups import GroupsFold
from journal.folds.queues import QueuesFold
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.fetches.stepwise_answers import Stepwise
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.queues.queue_requests import Queueing
from txbroker.broker.queues.takes import Takes
from txbroker.broker.sends.sends import Sending
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.transactions.request_content import RequestContent
from txbroker.groups.dead_letters import DeadLetters
from txbroker.queues.deliveries import Deliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine


def queueing(
    engine: Engine,
    settings: BrokerSettings,
    fold: QueuesFold,
    groups: GroupsFold,
    consuming: Consuming,
    stepwise: Stepwise,
    answers: Accounts,
    call_later: CallLater | None,
    random: Callable[[int], bytes],
) -> Queueing:
    """Return the meaning of requests about queues, known to the judge of what groups settle."""
    deliveries = Deliveries(engine, fold, groups)
    takes = Takes(
        engine,
        deliveries,
        consuming,
        stepwise,
        answers,
        settings.max_fetch_wait,
        settings.max_fetch,
        call_later,
    )
    found = Queueing(engine, fold, groups, settings.max_queues, random, takes, stepwise)
    consuming.judge_queues, consuming.on_returned = found.judge_settled, takes.returned
    consuming.rules_of_queues(found.rules_of)
    return found


def tell_of(queues: Queueing, sending: Sending, content: RequestContent, dead_letters: DeadLetters) -> None:
    """Let those know of queues who send messages."""
    sending.publish = queues.publishing.publish
    content.routed = queues.publishing.routed
    dead_letters.queue_runs, dead_letters.queue_origin = queues.dead_letter_runs, queues.dead_letter_origin
