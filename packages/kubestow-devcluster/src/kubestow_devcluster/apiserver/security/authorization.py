"""Authorization: what an authenticated user is allowed, by the mode AlwaysAllow or by RBAC.

Role-based access control reads roles, cluster roles and their bindings from the store. Members of ``system:masters``
are allowed everything. What other users can grant is checked by :mod:`escalation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kubestow.http.messages import ALL_UNAUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.security.users import SERVICE_ACCOUNT_PREFIX
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store


class Attributes(NamedTuple):
    """What a request is about: a resource, or a ``path`` that is none. Absent parts are empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether a request is allowed, and why; the reason can be empty."""

    is_allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides which requests of which users are allowed."""

    #: Whether requests without credentials are to be authorized, as those of ``system:anonymous``, or are rejected.
    accepts_anonymous: bool

    def authorize(self, user: UserInfo, attributes: Attributes) -> Decision:
        """Whether ``user`` is allowed a request."""

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Object], list[Object]]:
        """The policy rules for resources in a namespace, and for paths, that ``user`` has."""


class AlwaysAllow:
    """Allows all requests of authenticated users."""

    accepts_anonymous = False

    def authorize(self, user: UserInfo, attributes: Attributes) -> Decision:
        if ALL_UNAUTHENTICATED in user.groups:
            return Decision(False, "unauthenticated users are denied")
        return Decision(True, "all authenticated users are allowed")

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Object], list[Object]]:
        everything = ["*"]
        return (
            [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            [{"verbs": everything, "nonResourceURLs": everything}],
        )


RBAC_GROUP = "rbac.authorization.k8s.io"
PRIVILEGED_GROUP = "system:masters"


class _Grant(NamedTuple):
    """The rules of the role that a binding gives to a user, and how the user has it."""

    rules: list[Object]
    reason: str


class RBAC:
    """Authorizes by the RBAC objects in ``store``."""

    accepts_anonymous = True

    def __init__(self, store: Store) -> None:
        self._cluster_roles = DecodedObjects(store, f"clusterroles.{RBAC_GROUP}")
        self._roles = DecodedObjects(store, f"roles.{RBAC_GROUP}")
        self._cluster_role_bindings = DecodedObjects(store, f"clusterrolebindings.{RBAC_GROUP}")
        self._role_bindings = DecodedObjects(store, f"rolebindings.{RBAC_GROUP}")

    def authorize(self, user: UserInfo, attributes: Attributes) -> Decision:
        if PRIVILEGED_GROUP in user.groups:
            return Decision(True)
        for grant in self._grants(user, attributes.namespace):
            if any(rule_allows(rule, attributes) for rule in grant.rules):
                return Decision(True, f"RBAC: allowed by {grant.reason}")
        return Decision(False)

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Object], list[Object]]:
        grants = list(self._grants(user, namespace))
        rules = [rule for grant in grants for rule in grant.rules]
        if PRIVILEGED_GROUP in user.groups:
            rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
            rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
        return [rule for rule in rules if rule.get("resources")], [one for one in rules if one.get("nonResourceURLs")]

    def rules_of(self, reference: Object, namespace: str) -> list[Object] | None:
        """The rules of the role that a binding in ``namespace`` refers to; None if it does not exist."""
        role = self._role(reference, namespace)
        return None if role is None else role.get("rules") or []

    def _role(self, reference: Object, namespace: str) -> Object | None:
        if reference.get("kind") == "ClusterRole":
            return self._cluster_roles.by_key().get(reference.get("name", ""))
        return self._roles.by_key().get(f"{namespace}/{reference.get('name', '')}")

    def _grants(self, user: UserInfo, namespace: str) -> Iterator[_Grant]:
        for binding in self._cluster_role_bindings.by_key().values():
            yield from self._grant("ClusterRoleBinding", binding, user, "")
        if namespace:
            for binding in self._role_bindings.in_namespace(namespace):
                yield from self._grant("RoleBinding", binding, user, namespace)

    def _grant(self, kind: str, binding: Object, user: UserInfo, namespace: str) -> Iterator[_Grant]:
        subject = next((one for one in binding.get("subjects") or () if _is_subject(one, user, namespace)), None)
        if subject is None:
            return
        reference = binding["roleRef"]
        role = self._role(reference, namespace)
        if role is not None:
            name = binding["metadata"]["name"]
            quoted = f'"{name}/{namespace}"' if namespace else f'"{name}"'
            reason = f'{kind} {quoted} of {reference["kind"]} "{reference["name"]}" to {_described(subject)}'
            yield _Grant(role.get("rules") or [], reason)


def _is_subject(subject: Object, user: UserInfo, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            own = f"{subject.get('namespace') or namespace}:{subject['name']}"
            return user.name == SERVICE_ACCOUNT_PREFIX + own
    return False


def _described(subject: Object) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace", "")}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def rule_allows(rule: Object, attributes: Attributes) -> bool:
    """Whether a policy rule allows a request."""
    if not _contains(rule.get("verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_matches_path(pattern, attributes.path) for pattern in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    return (
        _contains(rule.get("apiGroups"), attributes.group)
        and _matches_resource(rule.get("resources") or [], attributes)
        and (not names or attributes.name in names)
    )


def _contains(values: list[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _matches_resource(resources: list[str], attributes: Attributes) -> bool:
    resource, subresource = attributes.resource, attributes.subresource
    if "*" in resources:
        return True
    return (f"{resource}/{subresource}" if subresource else resource) in resources or (
        bool(subresource) and f"*/{subresource}" in resources
    )


def _matches_path(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


# Default roles

_DEFAULT_ROLES = Path(__file__).with_name("default_roles.json")
#: What ``system:kube-scheduler`` is also allowed: to watch its lease, and the kinds of gang scheduling.
_SCHEDULER_RULES: tuple[Object, ...] = (
    {"verbs": ["list", "watch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
    {"verbs": ["get", "list", "watch"], "apiGroups": ["scheduling.k8s.io"], "resources": ["workloads"]},
    {
        "verbs": ["get", "list", "watch"],
        "apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh"],
        "resources": ["podgroups"],
    },
)
#: The role of metrics-server, for servers that serve metrics.k8s.io.
METRICS_READER: Object = {
    "metadata": {
        "name": "system:aggregated-metrics-reader",
        "labels": {f"{RBAC_GROUP}/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")},
    },
    "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"]}],
}


def default_roles() -> dict[str, list[Object]]:
    """The roles and bindings of a new cluster, by resource: for users, for the scheduler and for extension servers.

    ``tools/schema/roles.py`` selects them from those of kube-apiserver. A controller aggregates the rules of the roles
    ``admin``, ``edit`` and ``view``.
    """
    roles: dict[str, list[Object]] = msgspec.json.decode(_DEFAULT_ROLES.read_bytes())
    del roles["about"]
    scheduler = next(one for one in roles["clusterroles"] if one["metadata"]["name"] == "system:kube-scheduler")
    scheduler["rules"] += _SCHEDULER_RULES
    return roles
