"""The default roles and bindings of a cluster with RBAC: those for users, for the scheduler and for extension servers.

kube-apiserver has more, for components that do not exist here. ``system:kube-scheduler`` is also allowed the pod groups
of gang scheduling. The roles ``admin``, ``edit`` and ``view`` are aggregated by a controller.
"""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema.types import Object

_GROUP = "rbac.authorization.k8s.io"
_SCHEDULER = "system:kube-scheduler"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORKLOADS = ["daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale"]
_WORKLOADS += ["statefulsets", "statefulsets/scale"]


def _rule(groups: str, resources: list[str], verbs: list[str], *, names: list[str] | None = None) -> Object:
    """``groups`` are separated by commas; the core group is empty."""
    rule: Object = {"verbs": verbs, "apiGroups": groups.split(","), "resources": resources}
    return rule | {"resourceNames": names} if names else rule


def _paths(*paths: str) -> Object:
    return {"verbs": ["get"], "nonResourceURLs": list(paths)}


def _role(name: str, *rules: Object, namespace: str = "", aggregate_to: str = "") -> Object:
    metadata: Object = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    if aggregate_to:
        metadata["labels"][f"rbac.authorization.k8s.io/aggregate-to-{aggregate_to}"] = "true"
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata, "rules": list(rules)}


def _aggregated(name: str, *, aggregate_to: str = "") -> Object:
    selector = {"matchLabels": {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}}
    return _role(name, aggregate_to=aggregate_to) | {"aggregationRule": {"clusterRoleSelectors": [selector]}}


def _binding(name: str, role: str, subjects: list[tuple[str, str]], *, namespace: str = "") -> Object:
    """Binds a cluster role, or with ``namespace`` a role of it, to subjects given as kind and name."""
    binding = _role(name, namespace=namespace)
    del binding["rules"]
    binding["roleRef"] = {"apiGroup": _GROUP, "kind": "Role" if namespace else "ClusterRole", "name": role}
    binding["subjects"] = [{"kind": kind, "apiGroup": _GROUP, "name": subject} for kind, subject in subjects]
    return binding


_NAMESPACED = [
    "configmaps", "endpoints", "persistentvolumeclaims", "pods", "replicationcontrollers",
    "replicationcontrollers/scale", "serviceaccounts", "services",
]  # fmt: skip
_VIEWED = ["bindings", "events", "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims/status"]
_VIEWED += ["pods/log", "pods/status", "replicationcontrollers/status", "resourcequotas", "resourcequotas/status"]

CLUSTER_ROLES: tuple[Object, ...] = (
    _role("cluster-admin", _rule("*", ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}),
    _aggregated("admin"),
    _aggregated("edit", aggregate_to="admin"),
    _aggregated("view", aggregate_to="edit"),
    _role(
        "system:aggregate-to-admin",
        _rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
        _rule(_GROUP, ["rolebindings", "roles"], [*_WRITE, *_READ]),
        aggregate_to="admin",
    ),
    _role(
        "system:aggregate-to-edit",
        _rule("", ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], _READ),
        _rule("", ["serviceaccounts"], ["impersonate"]),
        _rule("", ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", *_NAMESPACED], _WRITE),
        _rule("", ["pods/eviction", "serviceaccounts/token"], ["create"]),
        _rule("apps", _WORKLOADS, _WRITE),
        _rule("autoscaling", ["horizontalpodautoscalers"], _WRITE),
        _rule("batch", ["cronjobs", "jobs"], _WRITE),
        _rule("policy", ["poddisruptionbudgets"], _WRITE),
        _rule("networking.k8s.io", ["ingresses", "networkpolicies"], _WRITE),
        _rule("coordination.k8s.io", ["leases"], [*_WRITE, *_READ]),
        _rule("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"], _WRITE),
        aggregate_to="edit",
    ),
    _role(
        "system:aggregate-to-view",
        _rule("", [*_NAMESPACED, *_VIEWED], _READ),
        _rule("discovery.k8s.io", ["endpointslices"], _READ),
        _rule("apps", ["controllerrevisions", *_WORKLOADS], _READ),
        _rule("autoscaling", ["horizontalpodautoscalers", "horizontalpodautoscalers/status"], _READ),
        _rule("batch", ["cronjobs", "cronjobs/status", "jobs", "jobs/status"], _READ),
        _rule("policy", ["poddisruptionbudgets", "poddisruptionbudgets/status"], _READ),
        _rule("networking.k8s.io", ["ingresses", "networkpolicies"], _READ),
        _rule("resource.k8s.io", ["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"], _READ),
        aggregate_to="view",
    ),
    _role(
        "system:auth-delegator",
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ),
    _role(
        "system:basic-user",
        _rule("authorization.k8s.io", ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
        _rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
    ),
    _role(
        "system:discovery",
        _paths("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"),
        _paths("/version", "/version/"),
    ),
    _role("system:public-info-viewer", _paths("/healthz", "/livez", "/readyz", "/version", "/version/")),
    _role("system:monitoring", _paths("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz")),
    _role(
        _SCHEDULER,
        _rule(",events.k8s.io", ["events"], ["create", "patch", "update"]),
        _rule("coordination.k8s.io", ["leases"], ["create", "list", "watch"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"], names=["kube-scheduler"]),
        _rule("", ["namespaces", "nodes", "replicationcontrollers", "services"], _READ),
        _rule("", ["pods"], ["delete", *_READ]),
        _rule("", ["bindings", "pods/binding"], ["create"]),
        _rule("", ["pods/status"], ["patch", "update"]),
        _rule("apps", ["replicasets", "statefulsets"], _READ),
        _rule("policy", ["poddisruptionbudgets"], _READ),
        _rule("", ["persistentvolumeclaims", "persistentvolumes"], _READ),
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        _rule("storage.k8s.io", ["csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"], _READ),
        _rule("resource.k8s.io", ["deviceclasses", "resourceslices"], _READ),
        _rule("resource.k8s.io", ["resourceclaims"], ["create", "delete", "patch", "update", *_READ]),
        _rule("resource.k8s.io", ["resourceclaims/binding", "resourceclaims/status"], ["patch", "update"]),
        _rule("scheduling.k8s.io,scheduling.x-k8s.io,scheduling.volcano.sh", ["podgroups"], _READ),
        _rule("scheduling.k8s.io", ["workloads"], _READ),
        _rule("scheduling.k8s.io", ["podgroups/status"], ["patch", "update"]),
    ),
    _role(
        "system:volume-scheduler",
        _rule("", ["persistentvolumeclaims", "persistentvolumes"], ["patch", "update", *_READ]),
        _rule("storage.k8s.io", ["storageclasses"], _READ),
    ),
)

#: The role of metrics-server, for servers that serve metrics.k8s.io.
METRICS_READER: Object = {
    "metadata": {
        "name": "system:aggregated-metrics-reader",
        "labels": {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")},
    },
    "rules": [_rule("metrics.k8s.io", ["nodes", "pods"], _READ)],
}

_AUTHENTICATED, _UNAUTHENTICATED = ("Group", "system:authenticated"), ("Group", "system:unauthenticated")

CLUSTER_ROLE_BINDINGS: tuple[Object, ...] = (
    _binding("cluster-admin", "cluster-admin", [("Group", "system:masters")]),
    _binding("system:basic-user", "system:basic-user", [_AUTHENTICATED]),
    _binding("system:discovery", "system:discovery", [_AUTHENTICATED]),
    _binding("system:public-info-viewer", "system:public-info-viewer", [_AUTHENTICATED, _UNAUTHENTICATED]),
    _binding("system:monitoring", "system:monitoring", [("Group", "system:monitoring")]),
    _binding(_SCHEDULER, _SCHEDULER, [("User", _SCHEDULER)]),
    _binding("system:volume-scheduler", "system:volume-scheduler", [("User", _SCHEDULER)]),
)

_READER, _LOCK = "extension-apiserver-authentication-reader", "system::leader-locking-kube-scheduler"

ROLES: tuple[Object, ...] = (
    _role(
        _READER,
        _rule("", ["configmaps"], _READ, names=["extension-apiserver-authentication"]),
        namespace="kube-system",
    ),
    _role(
        _LOCK,
        _rule("", ["configmaps"], ["watch"]),
        _rule("", ["configmaps"], ["get", "update"], names=["kube-scheduler"]),
        namespace="kube-system",
    ),
)

ROLE_BINDINGS: tuple[Object, ...] = (
    _binding(f"system::{_READER}", _READER, [("User", _SCHEDULER)], namespace="kube-system"),
    _binding(_LOCK, _LOCK, [("User", _SCHEDULER)], namespace="kube-system"),
)
