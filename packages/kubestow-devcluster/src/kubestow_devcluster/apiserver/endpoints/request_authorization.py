"""Authorization of requests: the user that a request impersonates, its attributes, and the 403 error."""

from __future__ import annotations

from multidict import MultiMapping

from kubestow.http.messages import ALL_AUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestInfo
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer
from kubestow_devcluster.apiserver.security.users import (
    SERVICE_ACCOUNT_PREFIX,
    impersonated_user,
    is_impersonation,
    service_account_groups,
)

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
    _authorize_impersonation(authorizer, user, impersonated)
    return impersonated


def _authorize_impersonation(authorizer: Authorizer, user: UserInfo, impersonated: UserInfo) -> None:
    """Raises a 403 StatusError."""
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


def _selected_name(field_selector: str) -> str:
    """The name that a list is restricted to by its field selector; empty if it is not."""
    for requirement in field_selector.split(","):
        field, operator, value = requirement.partition("=")
        if field.strip() == "metadata.name" and operator:
            return value.removeprefix("=").strip()
    return ""
