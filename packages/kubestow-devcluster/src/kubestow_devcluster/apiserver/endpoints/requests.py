"""Requests without a connection, so that handlers serve HTTP and in-process callers alike, and their authorization.

A resource path such as ``/apis/apps/v1/namespaces/default/deployments/web/scale`` has a :class:`RequestInfo`; paths
outside ``/api`` and ``/apis`` have none, and :mod:`api_handler` serves them separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from multidict import MultiMapping

from kubestow.api.formats.duration import Duration
from kubestow.http.messages import ALL_AUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.security.authentication import (
    ADMIN,
    SERVICE_ACCOUNT_PREFIX,
    impersonated_user,
    is_impersonation,
    service_account_groups,
)
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = range(-(2**63), 2**63)
_FIELD_VALIDATION = ("Ignore", "Strict", "Warn")
#: The kind of the options of a write, as error messages name it.
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    if_none_match: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``query`` has the first value of each parameter; ``body`` is complete and within the size limit.

    ``host`` is the host:port of the server that the client connected to.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: RequestHeaders = field(default_factory=RequestHeaders)
    body: bytes = b""
    user: UserInfo = ADMIN
    host: str = ""

    @property
    def dry_run(self) -> bool:
        """Raises a 422 StatusError for an unknown directive."""
        directive = self.query.get("dryRun", "")
        if directive not in ("", "All"):
            raise self._invalid(statuses.unsupported_value("dryRun", [directive], ("All",)))
        return directive == "All"

    @property
    def field_manager(self) -> str:
        """The ``fieldManager`` parameter, or the product name of the user agent. Raises a 422 StatusError."""
        name = self.query.get("fieldManager", "")
        if len(name) > 128:
            raise self._invalid(statuses.too_long("fieldManager", 128))
        if not name.isprintable():
            problem = "should only contain printable characters"
            raise self._invalid(statuses.invalid_value("fieldManager", name, problem))
        return name or self.headers.user_agent.partition("/")[0] or "unknown"

    @property
    def field_validation(self) -> str:
        """How unknown fields are handled: Ignore, Strict or Warn. Raises a 422 StatusError."""
        directive = self.query.get("fieldValidation", "") or "Warn"
        if directive not in _FIELD_VALIDATION:
            raise self._invalid(statuses.unsupported_value("fieldValidation", directive, _FIELD_VALIDATION))
        return directive

    def validate_timeout(self) -> None:
        """Raises a 400 StatusError for a ``timeout`` that is not a duration. Requests are not limited by it."""
        if text := self.query.get("timeout", ""):
            try:
                Duration.parse(text)
            except ValueError as error:
                raise statuses.bad_request(f"invalid timeout specified in the request URL - {error}") from None

    def flag(self, name: str) -> bool:
        """A boolean parameter. Any value but ``false`` and ``0`` is true, as in kube-apiserver."""
        value = self.query.get(name)
        return value is not None and value != "0" and value.lower() != "false"

    def number(self, name: str) -> int | None:
        """A 64-bit integer parameter, None without it. Raises a 400 StatusError with Go's message."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not _INTEGER.fullmatch(text):
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        # Parsing a long number takes quadratic time.
        if len(text) > 100 or (number := int(text)) not in _INT64:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return number

    def _invalid(self, error: statuses.FieldError) -> statuses.StatusError:
        options = _OPTIONS.get(self.method, "CreateOptions")
        return statuses.invalid(options, "", [error], group="meta.k8s.io")


class RequestInfo(NamedTuple):
    """What a resource path addresses; absent parts are empty. ``watch`` is set for the deprecated ``/watch/`` form."""

    group: str
    version: str
    namespace: str
    resource: str
    name: str
    subresource: str
    watch: bool


def parse_request_info(path: str) -> RequestInfo | None:
    """The info of a path below a version (``/api/v1/...``, ``/apis/G/V/...``); None for any other path."""
    segments = [unquote(segment) for segment in path.split("/")] if "%" in path else path.split("/")
    if segments[-1] == "":
        segments.pop()
    if len(segments) > 3 and segments[1] == "api":
        return _request_info("", segments[2], segments[3:])
    if len(segments) > 4 and segments[1] == "apis":
        return _request_info(segments[2], segments[3], segments[4:])
    return None


def _request_info(group: str, version: str, rest: list[str]) -> RequestInfo | None:
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return RequestInfo(group, version, namespace, resource, name, subresource, watch)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get", "DELETE": "delete"}


def attributes_of(request: Request, info: RequestInfo | None) -> Attributes:
    """What a request is about; ``info`` is that of its path, None for a path that is no resource."""
    if info is None:
        return Attributes(request.method.lower(), path=request.path)
    verb = _VERBS.get(request.method, "")
    name = info.name
    if verb == "get" and (info.watch or (not name and request.flag("watch"))):
        verb = "watch"
    elif not name and not info.subresource:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    if not name and verb in ("list", "watch"):
        name = _selected_name(request.query.get("fieldSelector", ""))
    # A namespace is itself in its namespace.
    namespace = info.namespace or (info.name if (info.group, info.resource) == ("", "namespaces") else "")
    return Attributes(verb, info.group, info.resource, info.subresource, namespace, name)


def authorize_request(authorizer: Authorizer, user: UserInfo, attributes: Attributes) -> None:
    """Raises a 403 StatusError."""
    decision = authorizer.authorize(user, attributes)
    if decision.is_allowed:
        return
    if attributes.path:
        problem = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        raise statuses.StatusError(403, "Forbidden", f"forbidden: {problem}", details={})
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    problem = (
        f'User "{user.name}" cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {scope}'
    )
    raise statuses.forbidden(GroupResource(attributes.group, attributes.resource), attributes.name, problem)


def effective_user(authorizer: Authorizer, user: UserInfo, headers: MultiMapping[str]) -> UserInfo:
    """The user of a request, or the one it impersonates. Raises a 400 or 403 StatusError."""
    if not is_impersonation(headers):
        return user
    impersonated = impersonated_user(headers)
    needed, implied = [], {ALL_AUTHENTICATED}
    if impersonated.name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, _, name = impersonated.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        needed.append(Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=name))
        implied.update(service_account_groups(namespace))
    else:
        needed.append(Attributes("impersonate", resource="users", name=impersonated.name))
    groups = (group for group in impersonated.groups if group not in implied)
    needed += (Attributes("impersonate", resource="groups", name=group) for group in groups)
    authentication = "authentication.k8s.io"
    if impersonated.uid:
        needed.append(Attributes("impersonate", authentication, "uids", name=impersonated.uid))
    for key, values in impersonated.extra.items():
        needed += (Attributes("impersonate", authentication, "userextras", key, name=value) for value in values)
    for attributes in needed:
        authorize_request(authorizer, user, attributes)
    return impersonated


def _selected_name(field_selector: str) -> str:
    """The name that a list is restricted to by its field selector; empty if it is not."""
    for requirement in field_selector.split(","):
        field, operator, value = requirement.partition("=")
        if field.strip() == "metadata.name" and operator:
            return value.removeprefix("=").strip()
    return ""
