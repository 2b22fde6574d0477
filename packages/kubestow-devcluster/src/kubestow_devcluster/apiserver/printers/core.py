"""Printers of core/v1: pods, nodes, namespaces, events, services, endpoints and the small kinds; of runtime classes,
endpoint slices, ingresses, network policies and role bindings.

The STATUS of a pod combines its phase, conditions and container states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from kubestow.api.storage import IS_DEFAULT_CLASS
from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    age_of,
    format_labels,
    format_list,
    format_selector,
    has_condition,
    name_of,
    print_fields,
    printer,
    template_cells,
)
from kubestow_devcluster.apiserver.schema.types import Object


def pod_status(pod: Object) -> tuple[str, int, int, int]:
    """STATUS, ready containers, all containers and restarts of a pod. Sidecars count as containers."""
    status = pod.get("status", {})
    text: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    total = len(pod["spec"].get("containers") or ())
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    init_containers = status.get("initContainerStatuses") or ()
    sidecar_statuses = [one for one in init_containers if one["name"] in sidecars]
    is_initialized = has_condition(status, "Initialized")
    initializing = "" if is_initialized else _init_status(init_containers, sidecars)
    containers = () if initializing else status.get("containerStatuses") or ()
    text, running = _container_status(text, containers)
    if initializing:
        text = initializing
    elif text == "Completed" and running:
        text = "Running" if has_condition(status, "Ready") else "NotReady"
    ready = sum(_is_running(one) for one in (*containers, *sidecar_statuses))
    counted = init_containers if initializing else sidecar_statuses
    restarts = sum(one.get("restartCount", 0) for one in (*counted, *containers))
    if "deletionTimestamp" in pod["metadata"]:
        text = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return text, ready, total + len(sidecars), restarts


def _container_status(text: str, containers: Sequence[Object]) -> tuple[str, bool]:
    """STATUS as the container states change it, and whether a container is running and ready."""
    running = False
    for container in reversed(containers):
        waiting, terminated = container.get("state", {}).get("waiting"), container.get("state", {}).get("terminated")
        if waiting is not None and waiting.get("reason"):
            text = waiting["reason"]
        elif terminated is not None:
            text = terminated.get("reason") or _exit_status(terminated)
        else:
            running = running or _is_running(container)
    return text, running


def _is_running(container: Object) -> bool:
    return bool(container.get("ready")) and "running" in container.get("state", {})


def _restarts(status: Object, restarts: int, now: datetime) -> str:
    """The number of restarts, and the time since the last one."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    finished = [one.get("lastState", {}).get("terminated", {}).get("finishedAt") for one in containers]
    last = max((time for time in finished if time), default="")
    return f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)


def _init_status(init_containers: Sequence[Object], sidecars: set[str]) -> str:
    """``Init:...`` for the first init container that has not completed; the empty string when all have."""
    for completed, container in enumerate(init_containers):
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or _exit_status(terminated)}"
        if waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{completed}/{len(init_containers)}"
    return ""


def _exit_status(terminated: Object) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


@printer("Name, Ready, Status, Restarts, Age, !IP, !Node, !Nominated Node, !Readiness Gates", "pods")
def _print_pod(pod: Object, now: datetime) -> list[Any]:
    spec, status = pod["spec"], pod.get("status", {})
    text, ready, total, restarts = pod_status(pod)
    gates = spec.get("readinessGates") or ()
    passed = sum(has_condition(status, gate["conditionType"]) for gate in gates)
    return [
        name_of(pod),
        f"{ready}/{total}",
        text,
        _restarts(pod.get("status", {}), restarts, now),
        age_of(pod, now),
        (status.get("podIPs") or [{}])[0].get("ip") or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


@printer("Name, Containers, Images, Pod Labels", "podtemplates")
def _print_pod_template(obj: Object, now: datetime) -> list[Any]:
    labels = obj.get("template", {}).get("metadata", {}).get("labels")
    return [name_of(obj), *template_cells(obj), format_labels(labels)]


@printer(
    "Name, Status, Roles, Age, Version, !Internal-IP, !External-IP, !OS-Image, !Kernel-Version, !Container-Runtime",
    "nodes",
)
def _print_node(node: Object, now: datetime) -> list[Any]:
    status, info = node.get("status", {}), node.get("status", {}).get("nodeInfo", {})
    conditions = [
        ("" if condition["status"] == "True" else "Not") + "Ready"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    if node["spec"].get("unschedulable"):
        conditions.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or UNKNOWN
    return [
        name_of(node),
        ",".join(conditions),
        format_list(sorted(roles)),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


@printer("Last Seen, Type, Reason, Object, !Subobject, !Source, Message, !First Seen, !Count, !Name", "events")
def _print_event(event: Object, now: datetime) -> list[Any]:
    regarding = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or series.get("lastObservedTime") or first
    target = (
        f"{regarding.get('kind', '').lower()}/{regarding['name']}"
        if regarding.get("name")
        else regarding.get("kind", "").lower()
    )
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        target,
        regarding.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        name_of(event),
    ]


@printer("Name, Data, Age", "configmaps")
def _print_config_map(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


@printer("Name, Type, Data, Age", "secrets")
def _print_secret(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


@printer("Name, Secrets, Age", "serviceaccounts")
def _print_service_account(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("secrets") or ()), age_of(obj, now)]


@printer("Name, Request, Limit, Age", "resourcequotas")
def _print_resource_quota(obj: Object, now: datetime) -> list[Any]:
    hard, used = (obj.get("status", {}).get(field) or {} for field in ("hard", "used"))
    cells = {resource: f"{resource}: {used.get(resource, '0')}/{hard[resource]}" for resource in sorted(hard)}
    limits = [cell for resource, cell in cells.items() if resource.startswith("limits.")]
    requests = [cell for resource, cell in cells.items() if not resource.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


#: Items that a cell lists; it counts the others.
_MAX_SHOWN = 3


def _shortened(items: list[str]) -> str:
    """The first items, and the number of the others."""
    if not items:
        return NONE
    rest = f" + {len(items) - _MAX_SHOWN} more..." if len(items) > _MAX_SHOWN else ""
    return ",".join(items[:_MAX_SHOWN]) + rest


@printer("Name, Type, Cluster-IP, External-IP, Port(s), Age, !Selector", "services")
def _print_service(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ingress = status.get("loadBalancer", {}).get("ingress") or ()
    addresses = list(spec.get("externalIPs") or ()) + [one.get("ip") or one.get("hostname", "") for one in ingress]
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer" and not addresses:
        external = "<pending>"
    else:
        external = format_list(addresses)
    ports = format_list(
        f"{port.get('port', 0)}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port', 0)}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    )
    return [
        name_of(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        external,
        ports,
        age_of(obj, now),
        format_labels(spec.get("selector")),
    ]


@printer("Name, Endpoints, Age", "endpoints")
def _print_endpoints(obj: Object, now: datetime) -> list[Any]:
    found = [
        f"{address['ip']}:{port['port']}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return [name_of(obj), _shortened(found), age_of(obj, now)]


@printer("Name, AddressType, Ports, Endpoints, Age", "endpointslices.discovery.k8s.io")
def _print_endpoint_slice(obj: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or ()]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    shown = [_shortened(ports) if ports else UNSET, _shortened(addresses) if addresses else UNSET]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


@printer("Name, Class, Hosts, Address, Ports, Age", "ingresses.networking.k8s.io")
def _print_ingress(obj: Object, now: datetime) -> list[Any]:
    spec, balancers = obj.get("spec", {}), obj.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    address = ",".join(one.get("ip") or one.get("hostname", "") for one in balancers)
    ports = "80, 443" if spec.get("tls") else "80"
    shown = _shortened(hosts) if hosts else "*"
    return [name_of(obj), spec.get("ingressClassName") or NONE, shown, address, ports, age_of(obj, now)]


@printer("Name, Pod-Selector, Age", "networkpolicies.networking.k8s.io")
def _print_network_policy(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), format_selector(obj.get("spec", {}).get("podSelector")), age_of(obj, now)]


@printer(
    "Name, Role, Age, !Users, !Groups, !ServiceAccounts",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
)
def _print_role_binding(obj: Object, now: datetime) -> list[Any]:
    role = obj.get("roleRef", {})
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        prefix = (
            f"{subject['namespace']}/" if subject.get("kind") == "ServiceAccount" and "namespace" in subject else ""
        )
        by_kind.setdefault(subject.get("kind", ""), []).append(prefix + name)
    subjects = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, now), *subjects]


print_fields("Name, Status, Age", "namespaces", "status.phase")
print_fields("Name, Handler, Age", "runtimeclasses.node.k8s.io", "handler")


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access_modes(modes: Iterable[str] | None) -> str:
    present = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in present)


@printer(
    "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
    "Reason, Age, !VolumeMode",
    "persistentvolumes",
)
def _print_persistent_volume(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    claim = spec.get("claimRef")
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", "")
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", ""),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


@printer(
    "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, !VolumeMode",
    "persistentvolumeclaims",
)
def _print_persistent_volume_claim(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", "")
    return [
        name_of(obj),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


@printer(
    "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age", "storageclasses.storage.k8s.io"
)
def _print_storage_class(obj: Object, now: datetime) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = annotations.get(IS_DEFAULT_CLASS) == "true"
    return [
        name_of(obj) + (" (default)" if is_default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        bool(obj.get("allowVolumeExpansion", False)),
        age_of(obj, now),
    ]


@printer("Name, Drivers:integer, Age", "csinodes.storage.k8s.io")
def _print_csi_node(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("spec", {}).get("drivers") or ()), age_of(obj, now)]


@printer("Name, Attacher, PV, Node, Attached:boolean, Age", "volumeattachments.storage.k8s.io")
def _print_volume_attachment(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    volume = spec.get("source", {}).get("persistentVolumeName", "")
    attached = bool(obj.get("status", {}).get("attached", False))
    return [name_of(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(obj, now)]


@printer(
    "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, TokenRequests, "
    "RequiresRepublish:boolean, Modes, Age",
    "csidrivers.storage.k8s.io",
)
def _print_csi_driver(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    flags = [spec.get("attachRequired", True), spec.get("podInfoOnMount", False), spec.get("storageCapacity", False)]
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    republished, modes = bool(spec.get("requiresRepublish", False)), spec.get("volumeLifecycleModes") or ()
    tokens = ",".join(audiences) if audiences else UNSET
    return [name_of(obj), *flags, tokens, republished, format_list(modes), age_of(obj, now)]


@printer("Name, State, Age", "resourceclaims.resource.k8s.io")
def _print_resource_claim(obj: Object, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    states = [
        state
        for state, holds in (
            ("deleted", "deletionTimestamp" in obj["metadata"]),
            ("allocated", "allocation" in status),
            ("reserved", bool(status.get("reservedFor"))),
        )
        if holds
    ]
    return [name_of(obj), ",".join(states) if states else "pending", age_of(obj, now)]


@printer("Name, Node, Driver, Pool, Age", "resourceslices.resource.k8s.io")
def _print_resource_slice(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    node = spec.get("nodeName") or ("<all nodes>" if spec.get("allNodes") else "<some nodes>")
    return [name_of(obj), node, spec.get("driver", ""), spec.get("pool", {}).get("name", ""), age_of(obj, now)]


print_fields("Name, Age", "deviceclasses.resource.k8s.io")
print_fields("Name, Age", "resourceclaimtemplates.resource.k8s.io")
print_fields("Name, DriverName, Age", "volumeattributesclasses.storage.k8s.io", "driverName")
