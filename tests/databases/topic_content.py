"""The content of a topic; and waiting for something that is not reported."""

import txbroker
from tests.support.waiting import eventually


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def resolve_until_done(opens, broker, in_doubt):
    """End what a program left; some of it was in doubt, or none. The database may notice the death only later."""
    with txbroker.Resolver(opens, broker) as resolver:
        done = []

        def resolved():
            found = resolver.resolve()
            done.extend([*found.committed, *found.rolled_back])
            return not found.waiting and bool(done) is in_doubt

        eventually(resolved)
