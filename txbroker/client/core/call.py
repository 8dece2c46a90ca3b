"""A request and its future answer, and the error that a refusal becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from txbroker import errors
from txbroker.client.core.options import RULES, Lost
from txbroker.client.core.promise import Promise
from txbroker.wire.codec import check_request
from txbroker.wire.messages import Answer, Refused, Request

AnswerType = TypeVar("AnswerType", bound=Answer)


class AnswerLost(errors.OutcomeUnknown):
    """The connection died before the answer came, and the request must not simply be sent again."""


class Call(Promise[AnswerType], Generic[AnswerType]):
    """A request and its future answer. ``data`` becomes the answer's data; ``attempts`` counts sendings."""

    __slots__ = ("attempts", "data", "deadline", "expected", "request", "rule")

    def __init__(self, request: Request, expected: type[AnswerType], data: bytes, deadline: float) -> None:
        super().__init__()
        self.request = request
        self.expected = expected
        self.data: bytes | memoryview = data
        self.deadline = deadline
        self.rule = RULES[type(request)]
        self.attempts = 0

    @property
    def is_over(self) -> bool:
        """Whether its answer was received although it still counts as waiting, because an interrupt came in between."""
        return self.done

    def answered(self, head: Answer, data: memoryview) -> None:
        """Take an answer of the right kind."""
        self.data = data
        self.resolve(head)  # type: ignore[arg-type]  # the core has looked at its class

    def refused(self, error: errors.TxBrokerError) -> None:
        """Take a refusal."""
        self.fail(error)

    def abandoned(self, error: errors.TxBrokerError) -> None:
        """Fail: the client is closed before the answer came."""
        self.fail(error)

    def expired(self, error: errors.TxBrokerError) -> bool:
        """Fail for lack of time; return whether the answer is not waited for any longer."""
        self.fail(error)
        return True


def check(request: Request) -> None:
    """Raise WrongType or WrongValue for a request that the broker could not read, before anything is done with it.

    Such a request would make the broker close the connection, with all that others have on it. Callers that know the
    parameter's name check before.
    """
    try:
        check_request(request)
    except (TypeError, ValueError, OverflowError) as error:
        of_value = isinstance(error, (UnicodeEncodeError, OverflowError))
        kind = errors.WrongValue if of_value else errors.WrongType
        raise kind(
            f"{type(request).__name__} was given what it does not take ({error}; its fields are "
            f"{', '.join(request.__struct_fields__[1:])}); nothing was sent"
        ) from error


def error_of(refusal: Refused) -> errors.TxBrokerError:
    """Return the error that a refusal names, with its extra fields as attributes."""
    return named_error(refusal.error, refusal.message, refusal.numbers, refusal.texts)


def named_error(
    name: str, message: str, numbers: Mapping[str, int], texts: Mapping[str, str]
) -> errors.TxBrokerError:
    """Return the error of a name. Its class is not called, because the sender may not know the arguments that
    it wants.
    """
    kind = errors.by_name(name)
    error = kind.__new__(kind, message)
    Exception.__init__(error, message)
    for attribute, value in [*numbers.items(), *texts.items()]:
        setattr(error, attribute, value)
    return error


def name_of(call: Call[Answer]) -> str:
    """Return the name of a call's request, for messages."""
    return type(call.request).__name__


def in_doubt(call: Call[Answer], reason: str) -> errors.RequestTimedOut:
    """Return the error for a call that was sent and got no answer."""
    if call.rule is Lost.READ:
        return errors.RequestTimedOut(f"{reason}; it changes nothing, so it can be tried again")
    return errors.RequestTimedOut(
        f"{reason}; {name_of(call)} was sent and may or may not have happened: look before repeating it"
    )


def lost(call: Call[Answer], error: errors.BrokerReplaced) -> errors.TxBrokerError:
    """Return the error for a call that was sent before the broker was replaced: what it asked of is not there to be
    asked again, and whether what it changed was done is known to the data of before alone.
    """
    if call.rule is Lost.READ:
        return error
    return errors.OutcomeLost(
        f"{error}. {name_of(call)} was sent before that and may or may not have happened there; no answer will come. "
        "Look at what the data that answer now have before repeating it"
    )
