"""Refusals as the API server words them: a :class:`StatusError` carries the ``Status`` object that answers the request.

One function per reason, named like the reason. The texts are kube-apiserver's own, because clients and people match on
them; the recordings of a real server hold them to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kubestow.devcluster.apiserver.field_errors import Cause
from kubestow.errors import APIError

if TYPE_CHECKING:
    from kubestow.devcluster.apiserver.resources.kind import Kind

__all__ = ["StatusError", "success"]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
#: A body of 3 MiB could have a million, and the answer would be a hundred times as long.
_MOST_CAUSES = 1000
NO_SUCH_RESOURCE = "the server could not find the requested resource"


class StatusError(APIError):
    """A request refused. ``details`` and ``continue_`` become the Status's own, ``retry_after`` (s) a header too."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
        continue_: str = "",
    ) -> None:
        super().__init__(code, reason, message, retry_after=retry_after)
        self.details, self.continue_ = details, continue_

    def status(self) -> dict[str, Any]:
        details = self.details
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": int(self.retry_after)}
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details is not None:
            status["details"] = details
        status["code"] = self.code
        return status

    def encode(self) -> bytes:
        return msgspec.json.encode(self.status()) + b"\n"


def success(*, code: int | None = None, details: dict[str, Any] | None = None) -> bytes:
    """The Status of a request that went well and has no object to show."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return msgspec.json.encode(status) + b"\n"


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(kind: Kind, name: str, problem: str) -> StatusError:
    return StatusError(
        403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {problem}', details=details(kind, name)
    )


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", NO_SUCH_RESOURCE, details={})


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind.resource} "{name}" not found', details=details(kind, name))


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(message: str, *, with_details: bool = False) -> StatusError:
    return StatusError(406, "NotAcceptable", message, details={} if with_details else None)


def already_exists(kind: Kind, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=details(kind, name))


def generate_name_conflict(kind: Kind, name: str) -> StatusError:
    message = (
        f'{kind.resource} "{name}" already exists, the server was not able to generate a unique name for the object'
    )
    return StatusError(409, "AlreadyExists", message, details=details(kind, name), retry_after=1)


def conflict(kind: Kind, name: str, problem: str = MODIFIED, *, resource: str = "") -> StatusError:
    subject = resource or kind.resource
    message = f'Operation cannot be fulfilled on {subject} "{name}": {problem}'
    about = {"name": name, "kind": resource} if resource else details(kind, name)
    return StatusError(409, "Conflict", message, details=about)


def uid_conflict(kind: Kind, key: str, name: str, *, wanted: str, found: str) -> StatusError:
    problem = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{kind.plural}/{key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )
    return conflict(kind, name, problem)


def expired(message: str, *, continue_: str = "") -> StatusError:
    return StatusError(410, "Expired", message, continue_=continue_)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(message: str, *, with_details: bool = False) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message, details={} if with_details else None)


def invalid(kind_name: str, name: str, causes: Sequence[Cause], *, group: str = "") -> StatusError:
    """``kind_name`` is the object's kind, or resource.group where the real server says so.

    Of very many causes the first are told.
    """
    causes = causes[:_MOST_CAUSES]
    seen = dict.fromkeys(str(cause) for cause in causes)
    problems = next(iter(seen)) if len(seen) == 1 else f"[{', '.join(seen)}]"
    about: dict[str, Any] = {"name": name} if name else {}
    if group:
        about["group"] = group
    about["kind"] = kind_name.partition(".")[0] if group else kind_name
    if causes:
        about["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    subject = kind_name if not group or "." in kind_name else f"{kind_name}.{group}"
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {problems}', details=about)


def rejected() -> StatusError:
    """A JSON patch that does not apply."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, details={})


def too_many_requests(message: str, *, cause: str, retry_after: int | None = None) -> StatusError:
    about = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    return StatusError(429, "TooManyRequests", message, details=about, retry_after=retry_after)


def internal(message: str) -> StatusError:
    """A Status without a reason, as some validation on subresources answers."""
    return StatusError(500, "", message)


def internal_error(message: str) -> StatusError:
    about = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=about)


def version_too_large(asked: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)


def timed_out() -> StatusError:
    """A request whose client did not get on with it."""
    return StatusError(504, "Timeout", "request did not complete within the allotted timeout", details={})


def details(kind: Kind, name: str) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        about["group"] = kind.group
    about["kind"] = kind.plural
    return about


def warning(text: str) -> str:
    """A warning as its header has it: one line, quotes escaped."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
