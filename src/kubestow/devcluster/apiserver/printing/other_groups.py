"""What people apply around workloads: ingresses, policies, quotas, role bindings, endpoints, and the like."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import (
    NONE,
    UNSET,
    Layout,
    Object,
    age_of,
    columns,
    labels_text,
    listed,
    name_of,
    selector_text,
    template_cells,
    values_at,
)

__all__ = ["LAYOUTS"]

#: Endpoints and ports named before the rest is only counted.
_NAMED = 3


def _shortened(items: list[str]) -> str:
    if not items:
        return NONE
    rest = f" + {len(items) - _NAMED} more..." if len(items) > _NAMED else ""
    return ",".join(items[:_NAMED]) + rest


def _endpoints(new: Object, now: datetime) -> list[Any]:
    found = [
        f"{address['ip']}:{port['port']}"
        for subset in new.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return [name_of(new), _shortened(found), age_of(new, now)]


def _endpoint_slice(new: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in new.get("ports") or ()]
    addresses = [address for endpoint in new.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    shown = [_shortened(ports) if ports else UNSET, _shortened(addresses) if addresses else UNSET]
    return [name_of(new), new.get("addressType", ""), *shown, age_of(new, now)]


def _ingress(new: Object, now: datetime) -> list[Any]:
    spec, balancers = new.get("spec", {}), new.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    address = ",".join(one.get("ip") or one.get("hostname", "") for one in balancers)
    ports = "80, 443" if spec.get("tls") else "80"
    shown = _shortened(hosts) if hosts else "*"
    return [name_of(new), spec.get("ingressClassName") or NONE, shown, address, ports, age_of(new, now)]


def _network_policy(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), selector_text(new.get("spec", {}).get("podSelector")), age_of(new, now)]


def _quota(new: Object, now: datetime) -> list[Any]:
    hard, used = (new.get("status", {}).get(field) or {} for field in ("hard", "used"))
    cells = {resource: f"{resource}: {used.get(resource, '0')}/{hard[resource]}" for resource in sorted(hard)}
    limits = [cell for resource, cell in cells.items() if resource.startswith("limits.")]
    requests = [cell for resource, cell in cells.items() if not resource.startswith("limits.")]
    return [name_of(new), ", ".join(requests), ", ".join(limits), age_of(new, now)]


def _role_binding(new: Object, now: datetime) -> list[Any]:
    role = new.get("roleRef", {})
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in new.get("subjects") or ():
        name = subject.get("name", "")
        within = (
            f"{subject['namespace']}/" if subject.get("kind") == "ServiceAccount" and "namespace" in subject else ""
        )
        named.setdefault(subject.get("kind", ""), []).append(within + name)
    whom = [", ".join(named[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(new), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(new, now), *whom]


def _attachment(new: Object, now: datetime) -> list[Any]:
    spec = new.get("spec", {})
    volume = spec.get("source", {}).get("persistentVolumeName", "")
    attached = bool(new.get("status", {}).get("attached", False))
    return [name_of(new), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(new, now)]


def _driver(new: Object, now: datetime) -> list[Any]:
    spec = new.get("spec", {})
    flags = [spec.get("attachRequired", True), spec.get("podInfoOnMount", False), spec.get("storageCapacity", False)]
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    republished, modes = bool(spec.get("requiresRepublish", False)), spec.get("volumeLifecycleModes") or ()
    tokens = ",".join(audiences) if audiences else UNSET
    return [name_of(new), *flags, tokens, republished, listed(modes), age_of(new, now)]


def _revision(new: Object, now: datetime) -> list[Any]:
    owners = new["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    kind = "" if owner is None else f"{owner['kind'].lower()}.{owner['apiVersion'].rpartition('/')[0]}".rstrip(".")
    return [name_of(new), f"{kind}/{owner['name']}" if owner else NONE, new.get("revision", 0), age_of(new, now)]


def _pod_template(new: Object, now: datetime) -> list[Any]:
    labels = new.get("template", {}).get("metadata", {}).get("labels")
    return [name_of(new), *template_cells(new), labels_text(labels)]


_BINDING = Layout(columns("Name", "Role", "Age", "!Users", "!Groups", "!ServiceAccounts"), _role_binding)

LAYOUTS: dict[str, Layout] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "controllerrevisions.apps": Layout(columns("Name", "Controller", ("Revision", "integer"), "Age"), _revision),
    "csidrivers.storage.k8s.io": Layout(
        columns(
            "Name",
            ("AttachRequired", "boolean"),
            ("PodInfoOnMount", "boolean"),
            ("StorageCapacity", "boolean"),
            "TokenRequests",
            ("RequiresRepublish", "boolean"),
            "Modes",
            "Age",
        ),
        _driver,
    ),
    "endpoints": Layout(columns("Name", "Endpoints", "Age"), _endpoints),
    "endpointslices.discovery.k8s.io": Layout(
        columns("Name", "AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice
    ),
    "ingresses.networking.k8s.io": Layout(columns("Name", "Class", "Hosts", "Address", "Ports", "Age"), _ingress),
    "networkpolicies.networking.k8s.io": Layout(columns("Name", "Pod-Selector", "Age"), _network_policy),
    "podtemplates": Layout(columns("Name", "Containers", "Images", "Pod Labels"), _pod_template),
    "resourcequotas": Layout(columns("Name", "Request", "Limit", "Age"), _quota),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "runtimeclasses.node.k8s.io": Layout(columns("Name", "Handler", "Age"), values_at("handler")),
    "volumeattachments.storage.k8s.io": Layout(
        columns("Name", "Attacher", "PV", "Node", ("Attached", "boolean"), "Age"), _attachment
    ),
    "volumeattributesclasses.storage.k8s.io": Layout(columns("Name", "DriverName", "Age"), values_at("driverName")),
}
