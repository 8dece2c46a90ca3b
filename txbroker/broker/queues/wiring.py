"""The parts of a broker that are about queues, made and made known to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.folds.groups import GroupsFold
from journal.folds.queues import QueuesFold
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.fetches.stepwise_answers import Stepwise
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.queues.consumer_timeouts import ConsumerTimeouts
from txbroker.broker.queues.consumers import Consumers
from txbroker.broker.queues.delaying import Delaying
from txbroker.broker.queues.giving import Giving
from txbroker.broker.queues.leases import Leases
from txbroker.broker.queues.queue_requests import Queueing
from txbroker.broker.queues.removals import Removals
from txbroker.broker.queues.returns import Returns
from txbroker.broker.queues.settler import Settler
from txbroker.broker.queues.takes import Takes
from txbroker.broker.schedule.scheduling import Scheduling
from txbroker.broker.sends.sends import Sending
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.transactions.request_content import RequestContent
from txbroker.groups.dead_letters import DeadLetters
from txbroker.groups.own_numbers import OwnNumbers
from txbroker.queues.declarations import Declarations
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.due_messages import DueMessages
from txbroker.queues.publishing import Publishing

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
    deliveries, settler = Deliveries(engine, fold, groups), Settler(engine, consuming)
    engine.housekeeping.compactor.unread = deliveries.unread
    removals = Removals(engine, deliveries, settler, settings.max_parked)
    giving = Giving(engine, removals, settings.max_fetch)
    returns = Returns(engine, deliveries, settler, call_later)
    takes = Takes(
        engine, deliveries, Consumers(engine, deliveries), giving, returns, removals, stepwise, answers,
        settings.max_fetch_wait, call_later,
    )  # fmt: skip
    declarations = Declarations(engine, fold, groups, settings.max_queues, random)
    publishing = Publishing(engine, fold, deliveries)
    publishing.on_unmeasured = removals.measure
    leases = Leases(deliveries, random, engine.now)
    timeouts = ConsumerTimeouts(engine, deliveries, returns)
    found = Queueing(engine, fold, declarations, publishing, takes, settler, leases, timeouts, stepwise)
    consuming.judge_queues, consuming.on_returned = found.judge_settled, returns.returned
    consuming.rules_of_queues(found.rules_of)
    return found


def delaying(
    engine: Engine,
    settings: BrokerSettings,
    queues: Queueing,
    scheduling: Scheduling,
    consuming: Consuming,
    new_session: Callable[[], int],
) -> Delaying:
    """Return what schedules messages that come to delayed exchanges, known to those who route these and list them; the
    schedule knows the exchanges.
    """
    fold, takes, schedule = queues.declarations.fold, queues.takes, scheduling.schedule
    found = Delaying(
        engine, settings, fold, takes.deliveries, takes.removals, schedule, consuming.recorded,
        OwnNumbers(engine, new_session),
    )  # fmt: skip
    schedule.exchanges = known = DueMessages(fold, queues.publishing)
    scheduling.exchange_of = known.name
    queues.publishing.judge_delayed = found.judge
    queues.listing.waiting_at = found.waiting_at
    return found


def tell_of(queues: Queueing, sending: Sending, content: RequestContent, dead_letters: DeadLetters) -> None:
    """Let those know of queues who send messages; delete those that were not to outlive the broker's last process."""
    sending.publish, sending.check_exchange = queues.publishing.publish, queues.publishing.exchange_at
    content.routed = queues.publishing.routed
    dead_letters.queue_runs, dead_letters.queue_origin = queues.dead_letter_runs, queues.dead_letter_origin
    queues.started()
