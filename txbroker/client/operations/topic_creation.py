"""Creates a topic exactly once, even if answers are lost, and says how an existing topic differs."""

from __future__ import annotations

import logging

from journal.arguments import NOTHING_CHANGED, text, truth, whole
from journal.quantities import shown
from journal.settings import QUANTITIES, TopicChoices, topic_settings
from journal.words import count_text
from txbroker import errors
from txbroker.client.core.call import AnswerLost
from txbroker.client.core.core import Core
from txbroker.client.core.results import Listed, listed
from txbroker.wire import messages
from txbroker.wire.messages import TopicInfo, Topics

log = logging.getLogger("txbroker.client")


async def described(core: Core, names: list[str] | None) -> Listed[TopicInfo]:
    """Return descriptions of topics, by name; unknown ones are left out."""
    found = await core.request(messages.DescribeTopics(core.correlation(), names), Topics)
    return listed(found.topics, found.is_filtered)


async def create_topic(
    core: Core, name: str, partitions: int | None, settings: TopicChoices, exist_ok: bool = False
) -> TopicInfo:
    """Create a topic; raises TopicExists, InvalidName, InvalidSetting. ``partitions`` None: 1, or those that exist.

    With ``exist_ok`` an existing topic is described as it is, and a warning says how it differs from the arguments. The
    broker's refusal is the check, so if several clients call at the same time, one creates it. A topic that is deleted
    before it is described is created after all.

    If the answer is lost, the topic that exists then is the requested one if it has its id. If there is none, it is
    requested under a new id: the first one may have been made and deleted.
    """
    name = text("name", name, NOTHING_CHANGED)
    count = 1 if partitions is None else whole("partitions", partitions, NOTHING_CHANGED)
    truth("exist_ok", exist_ok, NOTHING_CHANGED)
    wanted = topic_settings(settings)
    deadline = core.clock() + core.options.timeout
    while True:
        request = messages.CreateTopic(core.correlation(), name, count, wanted)
        try:
            return (await core.request(request, Topics, timeout=max(0.0, deadline - core.clock()))).topics[0]
        except errors.TopicExists:
            if not exist_ok:
                raise
            found = list(await described(core, [name]))
        except AnswerLost as error:
            found = await _after_loss(core, error, name)
        if found and found[0].id == request.id:
            return found[0]
        if found and exist_ok:
            if differences := _differences(found[0], partitions, settings):
                log.warning("topic %s exists already and is not changed: %s", name, "; ".join(differences))
            return found[0]


async def _after_loss(core: Core, lost: AnswerLost, name: str) -> list[TopicInfo]:
    """Return the topic of that name after the answer to its creation was lost; raises OutcomeUnknown without
    a broker.
    """
    try:
        return await described(core, [name])
    except errors.TxBrokerError as error:
        raise errors.OutcomeUnknown(
            f"{lost}, and whether it has created topic {name!r} could not be asked: {error}. Describe the topic "
            "later"
        ) from error


def _differences(there: TopicInfo, partitions: int | None, settings: TopicChoices) -> list[str]:
    """Return how a topic differs from the arguments that were given."""
    found = []
    if partitions is not None and len(there.partitions) != partitions:
        found.append(f"it has {count_text(len(there.partitions), 'partition')}, not {partitions:,}")
    wanted = topic_settings(settings)
    for name in settings:
        has, asked = (shown(QUANTITIES[name], getattr(each, name)) for each in (there.settings, wanted))
        if has != asked:
            found.append(f"its {name} is {has}, not {asked}")
    return found
