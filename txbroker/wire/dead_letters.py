"""Dead letters: how the topic that takes them is named, and the headers that say where one comes from and why."""

from __future__ import annotations

from typing import Final

DEAD_SUFFIX: Final = ".dead"
"""The dead letters of a topic go to the topic of its name with this behind it. No pattern of members matches such."""

DEAD_PREFIX: Final = "txbroker.dead."
"""How the headers of dead letters begin."""
DEAD_TOPIC: Final = "txbroker.dead.topic"
DEAD_PARTITION: Final = "txbroker.dead.partition"
DEAD_OFFSET: Final = "txbroker.dead.offset"
"""Headers of a dead letter: where the message was. Numbers are decimal text, all texts are UTF-8."""
DEAD_GROUP: Final = "txbroker.dead.group"
DEAD_ATTEMPTS: Final = "txbroker.dead.attempts"
"""Which group gave it up, after how many attempts."""
DEAD_FAILED: Final = "txbroker.dead.failed"
"""When the group first failed with it: µs of the broker's wall clock since 1970 UTC."""
DEAD_WHY: Final = "txbroker.dead.why"
"""Why, as the program said at last."""


def is_dead_topic(name: str) -> bool:
    """Return whether a topic is one of dead letters."""
    return name.endswith(DEAD_SUFFIX)


def dead_topic_of(name: str) -> str:
    """Return the name of the topic that takes the dead letters of a topic."""
    return name + DEAD_SUFFIX
