"""API errors: a :class:`StatusError` carries the ``Status`` object that is the response to a failed request.

One function per reason, named after it. The texts are kube-apiserver's own, because clients match them; wire recordings
of kube-apiserver hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubestow.http.messages import StatusError
from kubestow_devcluster.apiserver.group_version import GroupResource

__all__ = ["StatusError"]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
NO_SUCH_RESOURCE = "the server could not find the requested resource"
#: Field errors reported at most. A 3 MiB body can have a million, and the response would be a hundred times as long.
_MAX_CAUSES = 1000


def success(*, code: int | None = None, details: dict[str, Any] | None = None) -> bytes:
    """The encoded Status of a successful request that returns no object."""
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


def forbidden(resource: GroupResource, name: str, problem: str) -> StatusError:
    subject = f'{resource} "{name}"' if name else str(resource)
    message = f"{subject} is forbidden: {problem}"
    return StatusError(403, "Forbidden", message, details=status_details(resource, name))


def forbidden_host(problem: str) -> StatusError:
    return StatusError(403, "Forbidden", f"forbidden: {problem}; see --accept-hosts", details={})


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", NO_SUCH_RESOURCE, details={})


def not_found(resource: GroupResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', details=status_details(resource, name))


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(message: str, *, with_details: bool = False) -> StatusError:
    return StatusError(406, "NotAcceptable", message, details={} if with_details else None)


def already_exists(resource: GroupResource, name: str) -> StatusError:
    message = f'{resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=status_details(resource, name))


def generate_name_conflict(resource: GroupResource, name: str) -> StatusError:
    message = f'{resource} "{name}" already exists, the server was not able to generate a unique name for the object'
    return StatusError(409, "AlreadyExists", message, details=status_details(resource, name), retry_after=1)


def conflict(resource: GroupResource, name: str, problem: str = MODIFIED, *, subject: str = "") -> StatusError:
    """``subject`` replaces the resource where kube-apiserver names a subresource or a kind."""
    message = f'Operation cannot be fulfilled on {subject or resource} "{name}": {problem}'
    details = {"name": name, "kind": subject} if subject else status_details(resource, name)
    return StatusError(409, "Conflict", message, details=details)


def uid_conflict(resource: GroupResource, key: str, name: str, *, expected: str, actual: str) -> StatusError:
    problem = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.resource}/{key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}"
    )
    return conflict(resource, name, problem)


def expired(message: str, *, continue_: str = "") -> StatusError:
    return StatusError(410, "Expired", message, continue_=continue_)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(message: str, *, with_details: bool = False) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message, details={} if with_details else None)


def invalid(kind: str, name: str, errors: Sequence[FieldError], *, group: str = "") -> StatusError:
    """``kind`` is the object's kind, or resource.group where kube-apiserver names that, or empty where it names none.

    Reports the first 1,000 errors.
    """
    errors = errors[:_MAX_CAUSES]
    distinct = dict.fromkeys(str(error) for error in errors)
    problems = next(iter(distinct)) if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind.partition(".")[0] if group else kind
    if errors:
        details["causes"] = [
            {"reason": error.reason, "message": error.message, "field": error.field} for error in errors
        ]
    subject = kind if not group or "." in kind else f"{kind}.{group}"
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {problems}', details=details)


def too_many_requests(message: str, *, cause: str, retry_after: int | None = None) -> StatusError:
    """An eviction that a disruption budget does not allow."""
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    return StatusError(429, "TooManyRequests", message, details=details, retry_after=retry_after)


def internal(message: str) -> StatusError:
    """A 500 Status without a reason, as kube-apiserver sends for some validation of subresources."""
    return StatusError(500, "", message)


def go_text(value: Any) -> str:
    """A value of JSON as Go's format ``%v`` shows it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, float):
        # The shortest digits, with an exponent from 1e+06 on.
        text = repr(value).removesuffix(".0")
        digits = len(text.partition("e")[0].replace(".", "").strip("-0"))
        return text if 1e-4 <= abs(value) < 1e6 or not value else f"{value:.{max(digits - 1, 0)}e}"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def internal_error(message: str) -> StatusError:
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)


def resource_version_too_large(requested: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)


def request_timeout() -> StatusError:
    """The client did not send the request body in time."""
    return StatusError(504, "Timeout", "request did not complete within the allotted timeout", details={})


def status_details(resource: GroupResource, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.resource
    return details


def warning_header(text: str) -> str:
    """``text`` as the value of a Warning header: one line, quotes and backslashes escaped."""
    line = "".join(character if character.isprintable() else " " for character in text)
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: ``reason`` such as FieldValueInvalid, ``message`` without the path, ``field`` the path."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def invalid_value(field: str, value: object, problem: str) -> FieldError:
    message = f"Invalid value: {_json(value)}: {problem}" if problem else f"Invalid value: {_json(value)}"
    return FieldError("FieldValueInvalid", message, field)


def invalid_without_value(field: str, problem: str) -> FieldError:
    """As :func:`invalid_value`, for a value that is too large to show."""
    return FieldError("FieldValueInvalid", f"Invalid value: {problem}", field)


def invalid_type(field: str, value: object, problem: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", f"Invalid value: {_json(value)}: {problem}", field)


def invalid_values(field: str, value: object, problems: Sequence[str]) -> list[FieldError]:
    """One error for each problem of the same value."""
    return [invalid_value(field, value, problem) for problem in problems]


def required_value(field: str, problem: str = "") -> FieldError:
    return FieldError("FieldValueRequired", f"Required value: {problem}" if problem else "Required value", field)


def forbidden_value(field: str, problem: str) -> FieldError:
    return FieldError("FieldValueForbidden", f"Forbidden: {problem}", field)


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> FieldError:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    message = f"Unsupported value: {_json(value)}: supported values: {choices}"
    return FieldError("FieldValueNotSupported", message, field)


def validate_choice(field: str, value: object, supported: Sequence[str]) -> list[FieldError]:
    """The error of a value that is not one of those supported."""
    return [] if value in supported else [unsupported_value(field, value, supported)]


def validate_name(field: str, value: str, problems: Callable[[str], Sequence[str]]) -> list[FieldError]:
    """The errors that a function of :mod:`kubestow.api.formats.names` finds in a name."""
    return [invalid_value(field, value, problem) for problem in problems(value)]


def duplicate_value(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", f"Duplicate value: {_json(value)}", field)


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
