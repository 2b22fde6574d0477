"""The ListOptions of list and watch requests: validation, and the parsing of resourceVersion."""

from __future__ import annotations

from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.request import Request

__all__ = ["parse_resource_version", "validate_list_options", "wants_initial_events"]


def parse_resource_version(text: str) -> int | None:
    """A resourceVersion parameter, None when it is empty. Raises a 400 StatusError."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    # Parsing a long number takes quadratic time.
    if len(text) > 100 or (resource_version := int(text)) >= 2**64:
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    return resource_version


def validate_list_options(request: Request) -> None:
    """Validate the options of a list. Raises a 422 StatusError."""
    match, resource_version = request.query.get("resourceVersionMatch", ""), request.query.get("resourceVersion", "")
    error: field_errors.FieldError | None = None
    if match and request.query.get("continue"):
        error = _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    elif match and not resource_version:
        error = _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif match not in ("", "Exact", "NotOlderThan"):
        error = field_errors.unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan"))
    elif "sendInitialEvents" in request.query:
        error = field_errors.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match == "Exact" and resource_version == "0":
        error = _forbidden_match('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if error is not None:
        raise statuses.invalid("ListOptions", "", [error], group="meta.k8s.io")


def wants_initial_events(request: Request) -> bool | None:
    """Whether a watch starts with the current state and a bookmark (a streaming list); None if it does not say.

    Raises a 422 StatusError.
    """
    match = request.query.get("resourceVersionMatch", "")
    problem = ""
    if "sendInitialEvents" in request.query and match != "NotOlderThan":
        problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif "sendInitialEvents" not in request.query and match:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if problem:
        raise statuses.invalid("ListOptions", "", [_forbidden_match(problem)], group="meta.k8s.io")
    return request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else None


def _forbidden_match(problem: str) -> field_errors.FieldError:
    return field_errors.forbidden_value("resourceVersionMatch", problem)
