"""The ends of calls as data: values by the type that the caller expects, failures by class and arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kubestow.errors import APIError, ExtenderError, LeaseLost, Unreachable
from kubestow.flight_record.entries import Failure
from kubestow.scheduling.extenders.interface import PodGone

__all__ = ["WITHHELD", "decode_value", "exception_of", "failure_of"]

_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (APIError, ExtenderError, LeaseLost, PodGone, Unreachable)
}
_CANCELLED = "CancelledError"

WITHHELD = Failure("ConfidentialAnswer", ["this answer may be confidential, so it was not recorded"])
"""In place of an answer that is not recorded; a replay differs from there on."""


def failure_of(error: BaseException) -> Failure:
    """An exception as data."""
    match error:
        case APIError():
            return Failure(APIError.__name__, [error.code, error.reason, error.message, error.retry_after])
        case Unreachable():
            return Failure(Unreachable.__name__, [error.server, error.problem])
        case LeaseLost():
            return Failure(LeaseLost.__name__, [error.lease, error.problem])
        case ExtenderError():
            kind = PodGone if isinstance(error, PodGone) else ExtenderError
            return Failure(kind.__name__, [error.extender, error.verb, error.problem])
        case asyncio.CancelledError():
            return Failure(_CANCELLED, [])
    return Failure(type(error).__name__, [str(error)])


def exception_of(failure: Failure) -> BaseException:
    """The exception that a failure stands for."""
    if failure.type == _CANCELLED:
        return asyncio.CancelledError()
    kind = _KNOWN.get(failure.type)
    if kind is None:
        # The scheduler shows the name of an unexpected exception's class in messages.
        unexpected: Exception = type(failure.type, (Exception,), {})(*failure.arguments)
        return unexpected
    if kind is APIError:
        *arguments, retry_after = failure.arguments
        return APIError(*arguments, retry_after=retry_after)
    return kind(*failure.arguments)


def decode_value(value: Any, kind: Any) -> Any:
    """The value of an answer as the caller expects it. Raises msgspec.ValidationError."""
    return msgspec.convert(value, kind)
