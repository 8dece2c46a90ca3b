"""Virtual hosts of AMQP: each is a prefix of names. The queue ``celery`` of the host ``shop`` is the broker's queue
``shop/celery``, and its default exchange the broker's exchange ``shop/``, which sends a message to the queue of the
host that its key names.

So queues and exchanges of all hosts are listed, watched and allowed by the broker's own names; the host ``/`` has those
without a prefix.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from journal.records.queue_entries import DEFAULT_EXCHANGE_NAME, PREDECLARED, ExchangeKind
from txbroker.amqp import methods as m
from txbroker.amqp.connection_methods import Method

ROOT_NAME: Final = "/"
OWN_EXCHANGES: Final = {**PREDECLARED, "": ExchangeKind.DEFAULT}
"""The exchanges that each host has that has a prefix."""
REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The queue that is none: who consumes it gets what is sent to its replies' address (RabbitMQ's direct reply-to)."""
_EXCHANGES: Final[dict[type[Method], tuple[str, ...]]] = {
    m.ExchangeDeclare: ("exchange",),
    m.ExchangeDelete: ("exchange",),
    m.ExchangeBind: ("destination", "source"),
    m.ExchangeUnbind: ("destination", "source"),
    m.QueueBind: ("exchange",),
    m.QueueUnbind: ("exchange",),
    m.BasicPublish: ("exchange",),
}
_QUEUES: Final = frozenset(
    {m.QueueDeclare, m.QueueBind, m.QueueUnbind, m.QueuePurge, m.QueueDelete, m.BasicConsume, m.BasicGet}
)
_ARGUMENTS: Final = {m.QueueDeclare: "x-dead-letter-exchange", m.ExchangeDeclare: "alternate-exchange"}
M = TypeVar("M", bound=Method)


class VirtualHost:
    """A virtual host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._prefix = "" if name == ROOT_NAME else f"{name}/"

    def inside(self, name: str) -> str:
        """Return what the broker calls a queue or an exchange of that name in this host."""
        return self._prefix + name

    def outside(self, name: str) -> str:
        """Return what clients of this host call a queue or an exchange of the broker; its whole name if it is of
        another host.
        """
        return name.removeprefix(self._prefix)

    def shown(self, name: str) -> str:
        """Return what an error calls a queue or an exchange of the broker, as RabbitMQ does: with its host."""
        return f"'{self.outside(name) or DEFAULT_EXCHANGE_NAME}' in vhost '{self.name}'"

    def told(self, words: str) -> str:
        """Return the broker's words to a client of this host: what it names in quotes has no prefix any more."""
        for quote in "'", '"':
            words = words.replace(quote + self._prefix, quote)
        return words

    def entering(self, method: M) -> M:
        """Return a method of a client with the broker's names. A queue that is not named, or that stands for replies,
        stays so.
        """
        if not self._prefix:
            return method
        kind = type(method)
        changed: dict[str, Any] = {
            each: self.inside(getattr(method, each)) for each in _EXCHANGES.get(kind, ())
        }
        if kind in _QUEUES and (queue := getattr(method, "queue")) and not queue.startswith(REPLY_TO):  # noqa: B009
            changed["queue"] = self.inside(queue)
        if (argument := _ARGUMENTS.get(kind)) is not None:
            given = getattr(method, "arguments")  # noqa: B009
            if isinstance(value := given.get(argument), str):
                changed["arguments"] = {**given, argument: self.inside(value)}
        return replace(method, **changed) if changed else method


ROOT: Final = VirtualHost(ROOT_NAME)
