"""Privilege escalation: a user can grant by roles and bindings only what the user is allowed.

Exceptions are the verbs ``escalate`` (roles) and ``bind`` (bindings of a role), and changes that only a garbage
collector needs. Messages are kube-apiserver's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.security.authorization import (
    PRIVILEGED_GROUP,
    RBAC,
    RBAC_GROUP,
    Attributes,
    rule_allows,
)

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
            _confirm(rbac, user, resource, namespace, name, _referenced_rules(rbac, reference, namespace))
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


def _referenced_rules(rbac: RBAC, reference: Object, namespace: str) -> Sequence[Object]:
    """Raises a 404 StatusError."""
    rules = rbac.rules_of(reference, namespace)
    if rules is None:
        plural = "clusterroles" if reference.get("kind") == "ClusterRole" else "roles"
        raise statuses.not_found(GroupResource(RBAC_GROUP, plural), reference.get("name", ""))
    return rules


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
