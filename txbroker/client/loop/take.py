"""Methods on an event loop that hand out messages: each says what to take and how long to wait, its client takes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from txbroker.client.consumer.delivery import Delivery, Source
from txbroker.client.core.client_method import PartOf

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Take(NamedTuple, Generic[T_co]):
    """What to take: once it is its turn at ``source``, or None by ``end`` of the core's clock, what ``hand_out`` makes.

    That is made in one step with going on.
    """

    source: Source
    end: float
    hand_out: Callable[[Delivery | None], T_co]


class Takes(Protocol[T_contra, R_co]):
    """A connection on an event loop, which makes ``R`` of what takes ``T``."""

    def take(self, begin: Callable[[], Take[T_contra]], /) -> R_co:
        """Take messages. What ``begin`` raises is what the call fails with."""


class TakingMethod(Protocol[P, T_co]):
    """A method of a transaction or a consumer that takes ``T``."""

    def __get__(self, client: PartOf[Takes[T_co, R]], kind: type | None = None, /) -> Callable[P, R]:
        """The method of one transaction or consumer."""


def taking_method(begin: Callable[Concatenate[S, P], Take[T]]) -> TakingMethod[P, T]:
    """Make a method out of the function that says what to take."""

    @wraps(begin)
    def method(client: Any, *args: P.args, **choices: P.kwargs) -> Any:
        return client._connection.take(lambda: begin(client, *args, **choices))

    found: Any = method
    return found  # type: ignore[no-any-return]


def one_of(delivery: Delivery | None) -> Any:
    """Hand out the next message; None at the end."""
    return None if delivery is None else delivery.one()
