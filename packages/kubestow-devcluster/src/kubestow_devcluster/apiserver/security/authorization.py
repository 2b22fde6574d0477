"""Authorization: what an authenticated user is allowed, by the mode AlwaysAllow or by RBAC.

Role-based access control reads roles, cluster roles and their bindings from the store. Members of ``system:masters``
are allowed everything. Other users can grant by roles and bindings only what they are allowed, apart from the verbs
``escalate`` (roles) and ``bind`` (bindings of a role), and changes that only a garbage collector needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kubestow.http.messages import ALL_UNAUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.security.authentication import SERVICE_ACCOUNT_PREFIX
from kubestow_devcluster.apiserver.storage.store import DecodedObjects, Store


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
#: What ``system:kube-scheduler`` is also allowed: to watch its lease, the kinds of gang scheduling, and definitions.
_SCHEDULER_RULES: tuple[Object, ...] = (
    {"verbs": ["list", "watch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
    {
        "verbs": ["get", "list", "watch"],
        "apiGroups": ["scheduling.k8s.io"],
        "resources": ["workloads", "compositepodgroups"],
    },
    {
        "verbs": ["get", "list", "watch"],
        "apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.incubator.k8s.io"],
        "resources": ["podgroups"],
    },
    {
        "verbs": ["get", "list", "watch"],
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
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


_EVERYTHING: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_RESOURCES = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
#: The names of a rule's fields in messages, in their order.
_NAMES = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames",
    "verbs": "Verbs",
}


def check_escalation(
    rbac: RBAC, user: UserInfo, resource: GroupResource, namespace: str, new: Object, old: Object | None
) -> None:
    """Raises a 403 StatusError for a role or binding that grants what ``user`` is not allowed to.

    ``old`` is the object before an update, None for a creation. Also raises a 404 StatusError for a binding of a role
    that does not exist.
    """
    is_rbac = resource.group == RBAC_GROUP and resource.resource in _RESOURCES
    if not is_rbac or PRIVILEGED_GROUP in user.groups:
        return
    if old is not None and _without_collected_fields(new) == _without_collected_fields(old):
        return
    name = new["metadata"].get("name", "")
    if resource.resource.endswith("bindings"):
        reference = new["roleRef"]
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(reference.get("kind", ""), "")
        attributes = Attributes("bind", reference.get("apiGroup", ""), plural, "", namespace, reference.get("name", ""))
        if not plural or not rbac.authorize(user, attributes).is_allowed:
            rules = rbac.rules_of(reference, namespace)
            if rules is None:
                plural = "clusterroles" if reference.get("kind") == "ClusterRole" else "roles"
                raise statuses.not_found(GroupResource(RBAC_GROUP, plural), reference.get("name", ""))
            _confirm(rbac, user, resource, namespace, name, rules)
        return
    # The name of an object that is created is not part of the request.
    requested = "" if old is None else name
    if rbac.authorize(user, Attributes("escalate", RBAC_GROUP, resource.resource, "", namespace, requested)).is_allowed:
        return
    _confirm(rbac, user, resource, namespace, name, new.get("rules") or ())
    if any(role is not None and role.get("aggregationRule") for role in (new, old)):
        held = _held(rbac, user, namespace)
        if any(not _is_covered(rule, held) for rule in _EVERYTHING):
            raise statuses.forbidden(resource, name, "must have cluster-admin privileges to use an aggregationRule")


def _confirm(
    rbac: RBAC, user: UserInfo, resource: GroupResource, namespace: str, name: str, granted: Sequence[Object]
) -> None:
    """Raises a 403 StatusError that lists the granted permissions which the user does not have."""
    held = _held(rbac, user, namespace)
    missing = [rule for one in granted for rule in _atomic_rules(one) if not _is_covered(rule, held)]
    if missing:
        permissions = "\n".join(sorted({_format(rule) for rule in _compacted(missing)}))
        problem = (
            f"user {_quoted(user.name)} (groups={_quoted_list(user.groups)}) is attempting to grant RBAC permissions"
            f" not currently held:\n{permissions}"
        )
        raise statuses.forbidden(resource, name, problem)


def _held(rbac: RBAC, user: UserInfo, namespace: str) -> list[Object]:
    resource_rules, path_rules = rbac.rules(user, namespace)
    return [*resource_rules, *path_rules]


def _atomic_rules(rule: Object) -> Iterator[Object]:
    """Rules with one value per field that together are equal to ``rule``."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                atomic = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames") or ()
                yield from ({**atomic, "resourceNames": [name]} for name in names) if names else (atomic,)
    for url in rule.get("nonResourceURLs") or ():
        yield from ({"nonResourceURLs": [url], "verbs": [verb]} for verb in verbs)


def _is_covered(atomic: Object, held: Sequence[Object]) -> bool:
    verb = atomic["verbs"][0]
    if "nonResourceURLs" in atomic:
        attributes = Attributes(verb, path=atomic["nonResourceURLs"][0])
    else:
        resource, _, subresource = atomic["resources"][0].partition("/")
        name = (atomic.get("resourceNames") or ("",))[0]
        attributes = Attributes(verb, atomic["apiGroups"][0], resource, subresource, name=name)
    return any(rule_allows(rule, attributes) for rule in held)


def _compacted(rules: Sequence[Object]) -> list[Object]:
    """Atomic rules that differ in their verb only as one rule; rules of names and paths stay as they are."""
    compacted: list[Object] = []
    by_resource: dict[tuple[str, str], Object] = {}
    for rule in rules:
        if "nonResourceURLs" in rule or "resourceNames" in rule:
            compacted.append(rule)
            continue
        key = (rule["apiGroups"][0], rule["resources"][0])
        if key in by_resource:
            by_resource[key]["verbs"] = [*by_resource[key]["verbs"], *rule["verbs"]]
        else:
            by_resource[key] = dict(rule)
    return [*compacted, *by_resource.values()]


def _format(rule: Object) -> str:
    """``{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}``."""
    parts = (f"{name}:{_quoted_list(rule[field])}" for field, name in _NAMES.items() if field in rule)
    return "{" + ", ".join(parts) + "}"


def _quoted_list(values: Sequence[str]) -> str:
    return f"[{' '.join(map(_quoted, values))}]"


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without_collected_fields(obj: Object) -> Object:
    """An object without the metadata that garbage collection changes, and what every write changes."""
    dropped = ("finalizers", "ownerReferences", "managedFields", "resourceVersion")
    return {**obj, "metadata": {field: value for field, value in obj["metadata"].items() if field not in dropped}}
