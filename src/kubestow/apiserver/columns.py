"""The columns of each kind, and the cells of one object: the server's half of ``kubectl get``.

A layout is a list of columns and a function from an object to its cells, in the same order. Priority 1 columns are
shown with ``-o wide`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["DEFAULT", "LAYOUTS", "Column", "Layout", "age", "pod_status"]

Object = dict[str, Any]

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], list[Any]]


def _columns(*described: str | tuple[str, str] | Column) -> tuple[Column, ...]:
    """A bare name is a string column; ``"!Name"`` one for -o wide; ``(name, type)`` one of another type."""
    made = []
    for one in described:
        if isinstance(one, Column):
            made.append(one)
        elif isinstance(one, tuple):
            made.append(Column(one[0], one[1]))
        else:
            made.append(Column(one.lstrip("!"), priority=int(one.startswith("!"))))
    return tuple(made)


# Cells


def age(since: str | None, now: datetime) -> str:
    """A duration as kubectl writes it: two units at most, coarser as it grows."""
    if not since:
        return UNKNOWN
    return duration((now - datetime.fromisoformat(since)).total_seconds())


def duration(length: float) -> str:
    """Seconds as ``45s``, ``3m12s``, ``5h3m``, ``4d2h``, ``2y13d``."""
    seconds = int(length)
    if length < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = days // 365, days % 365
    if days < 8 * 365:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def _name(new: Object) -> str:
    name: str = new["metadata"]["name"]
    return name


def _born(new: Object, now: datetime) -> str:
    return age(new["metadata"].get("creationTimestamp"), now)


def _listed(items: Iterable[str]) -> str:
    return ",".join(items) or NONE


def _labels(labels: dict[str, str] | None) -> str:
    return _listed(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def selector_text(selector: Object | None) -> str:
    """A label selector as kubectl writes it."""
    if selector is None:
        return NONE
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or ():
        key, operator, values = requirement["key"], requirement["operator"], ",".join(requirement.get("values") or ())
        form = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(form.get(operator, key))
    return _listed(terms)


def _template_cells(spec: Object) -> tuple[str, str]:
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return _listed(c["name"] for c in containers), _listed(c.get("image", "") for c in containers)


# Pods


def pod_status(pod: Object) -> tuple[str, int, int, int]:
    """The STATUS word of a pod, its ready and all containers, and its restarts."""
    status = pod.get("status", {})
    word: str = status.get("reason") or status.get("phase", "")
    containers = status.get("containerStatuses") or ()
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    ready, restarts, running = 0, 0, False
    for container in reversed(containers):
        state = container.get("state", {})
        restarts += container.get("restartCount", 0)
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = terminated.get("reason") or _exit_word(terminated)
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if word == "Completed" and running:
        word = "Running" if _is_ready(status) else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word, ready, len(pod["spec"].get("containers") or ()), restarts


def _exit_word(terminated: Object) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_ready(status: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _pod(pod: Object, now: datetime) -> list[Any]:
    spec, status = pod["spec"], pod.get("status", {})
    word, ready, total, restarts = pod_status(pod)
    gates = spec.get("readinessGates") or ()
    passed = sum(
        any(c["type"] == gate["conditionType"] and c["status"] == "True" for c in status.get("conditions") or ())
        for gate in gates
    )
    return [
        _name(pod),
        f"{ready}/{total}",
        word,
        str(restarts),
        _born(pod, now),
        (status.get("podIPs") or [{}])[0].get("ip") or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _node(node: Object, now: datetime) -> list[Any]:
    status, info = node.get("status", {}), node.get("status", {}).get("nodeInfo", {})
    words = [
        ("" if condition["status"] == "True" else "Not") + "Ready"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or UNKNOWN
    return [
        _name(node),
        ",".join(words),
        _listed(sorted(roles)),
        _born(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _event(event: Object, now: datetime) -> list[Any]:
    subject = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or series.get("lastObservedTime") or first
    shown = (
        f"{subject.get('kind', '').lower()}/{subject['name']}"
        if subject.get("name")
        else subject.get("kind", "").lower()
    )
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        shown,
        subject.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        _name(event),
    ]


# Workloads


def _deployment(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    selector = selector_text(spec.get("selector"))
    return [_name(new), ready, updated, available, _born(new, now), *_template_cells(spec), selector]


def _replica_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    selector = spec.get("selector")
    shown = (
        selector_text(selector)
        if selector is None or "matchLabels" in selector or "matchExpressions" in selector
        else _labels(selector)
    )
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(new), *counts, _born(new, now), *_template_cells(spec), shown]


def _stateful_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(new), ready, _born(new, now), *_template_cells(spec)]


def _daemon_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = _labels(spec.get("template", {}).get("spec", {}).get("nodeSelector"))
    counts = [status.get(field, 0) for field in fields]
    return [_name(new), *counts, selector, _born(new, now), *_template_cells(spec), selector_text(spec.get("selector"))]


def _job(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    wanted = spec.get("completions")
    parallel = spec.get("parallelism", 1)
    goal = str(wanted) if wanted is not None else f"1 of {parallel}" if parallel > 1 else "1"
    conditions = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    word = (
        "Complete"
        if "Complete" in conditions
        else "Failed"
        if "Failed" in conditions
        else "Suspended"
        if "Suspended" in conditions
        else "Running"
    )
    begun, ended = status.get("startTime"), status.get("completionTime")
    took = ""
    if begun:
        end = datetime.fromisoformat(ended) if ended else now
        took = duration((end - datetime.fromisoformat(begun)).total_seconds())
    progress = f"{status.get('succeeded', 0)}/{goal}"
    return [
        _name(new),
        word,
        progress,
        took,
        _born(new, now),
        *_template_cells(spec),
        selector_text(spec.get("selector")),
    ]


def _cron_job(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    template = spec.get("jobTemplate", {}).get("spec", {})
    active = len(status.get("active") or ())
    zone = spec.get("timeZone") or NONE
    cells = [_name(new), spec.get("schedule", ""), zone, str(spec.get("suspend", False)), active, last, _born(new, now)]
    return [*cells, *_template_cells(template), selector_text(template.get("selector"))]


# Services, storage and the rest


def _service(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ingress = status.get("loadBalancer", {}).get("ingress") or ()
    outside = list(spec.get("externalIPs") or ()) + [one.get("ip") or one.get("hostname", "") for one in ingress]
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer" and not outside:
        external = "<pending>"
    else:
        external = _listed(outside)
    ports = _listed(
        f"{port['port']}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port['port']}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    )
    address = spec.get("clusterIP") or NONE
    return [_name(new), spec.get("type", ""), address, external, ports, _born(new, now), _labels(spec.get("selector"))]


_ACCESS = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access(modes: Iterable[str] | None) -> str:
    present = set(modes or ())
    return ",".join(short for mode, short in _ACCESS.items() if mode in present)


def _volume(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    claim = spec.get("claimRef")
    phase = "Terminating" if "deletionTimestamp" in new["metadata"] else status.get("phase", "")
    return [
        _name(new),
        (spec.get("capacity") or {}).get("storage", ""),
        _access(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        _born(new, now),
        spec.get("volumeMode", UNSET),
    ]


def _claim(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in new["metadata"] else status.get("phase", "")
    return [
        _name(new),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _access(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        _born(new, now),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(new: Object, now: datetime) -> list[Any]:
    annotations = new["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        _name(new) + (" (default)" if is_default else ""),
        new.get("provisioner", ""),
        new.get("reclaimPolicy", ""),
        new.get("volumeBindingMode", ""),
        bool(new.get("allowVolumeExpansion", False)),
        _born(new, now),
    ]


def _budget(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    bounds = ["N/A" if bound is None else str(bound) for bound in (least, most)]
    return [_name(new), *bounds, status.get("disruptionsAllowed", 0), _born(new, now)]


def _claim_state(new: Object, now: datetime) -> list[Any]:
    status = new.get("status") or {}
    states = [
        word
        for word, holds in (
            ("deleted", "deletionTimestamp" in new["metadata"]),
            ("allocated", "allocation" in status),
            ("reserved", bool(status.get("reservedFor"))),
        )
        if holds
    ]
    return [_name(new), ",".join(states) if states else "pending", _born(new, now)]


def _slice(new: Object, now: datetime) -> list[Any]:
    spec = new.get("spec", {})
    node = spec.get("nodeName") or ("<all nodes>" if spec.get("allNodes") else "<some nodes>")
    return [_name(new), node, spec.get("driver", ""), spec.get("pool", {}).get("name", ""), _born(new, now)]


def _simple(*paths: str) -> Callable[[Object, datetime], list[Any]]:
    """Name, the values at these dotted paths, age."""

    def cells(new: Object, now: datetime) -> list[Any]:
        values = []
        for path in paths:
            value: Any = new
            for step in path.split("."):
                value = value.get(step) if isinstance(value, dict) else None
            values.append(len(value) if isinstance(value, (dict, list)) else "" if value is None else value)
        return [_name(new), *values, _born(new, now)]

    return cells


def _priority_class(new: Object, now: datetime) -> list[Any]:
    policy = new.get("preemptionPolicy", "")
    return [_name(new), new.get("value", 0), bool(new.get("globalDefault", False)), _born(new, now), policy]


def _node_drivers(new: Object, now: datetime) -> list[Any]:
    return [_name(new), len(new.get("spec", {}).get("drivers") or ()), _born(new, now)]


def _data(new: Object, now: datetime) -> list[Any]:
    return [_name(new), len(new.get("data") or ()) + len(new.get("binaryData") or ()), _born(new, now)]


def _secret(new: Object, now: datetime) -> list[Any]:
    return [_name(new), new.get("type", ""), len(new.get("data") or ()), _born(new, now)]


def _account(new: Object, now: datetime) -> list[Any]:
    return [_name(new), len(new.get("secrets") or ()), _born(new, now)]


def _created_at(new: Object, now: datetime) -> list[Any]:
    return [_name(new), new["metadata"].get("creationTimestamp", "")]


DEFAULT = Layout(_columns("Name", ("Created At", "date")), _created_at)

_TEMPLATE = ("!Containers", "!Images", "!Selector")
LAYOUTS: dict[str, Layout] = {
    "configmaps": Layout(_columns("Name", "Data", "Age"), _data),
    "cronjobs.batch": Layout(
        _columns("Name", "Schedule", "Timezone", "Suspend", ("Active", "integer"), "Last Schedule", "Age", *_TEMPLATE),
        _cron_job,
    ),
    "csinodes.storage.k8s.io": Layout(_columns("Name", ("Drivers", "integer"), "Age"), _node_drivers),
    "daemonsets.apps": Layout(
        _columns(
            "Name",
            *((name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
            "Node Selector",
            "Age",
            *_TEMPLATE,
        ),
        _daemon_set,
    ),
    "deployments.apps": Layout(_columns("Name", "Ready", "Up-to-date", "Available", "Age", *_TEMPLATE), _deployment),
    "deviceclasses.resource.k8s.io": Layout(_columns("Name", "Age"), _simple()),
    "events": Layout(
        _columns(
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "!Subobject",
            "!Source",
            "Message",
            "!First Seen",
            "!Count",
            "!Name",
        ),
        _event,
    ),
    "jobs.batch": Layout(_columns("Name", "Status", "Completions", "Duration", "Age", *_TEMPLATE), _job),
    "leases.coordination.k8s.io": Layout(_columns("Name", "Holder", "Age"), _simple("spec.holderIdentity")),
    "namespaces": Layout(_columns("Name", "Status", "Age"), _simple("status.phase")),
    "nodes": Layout(
        _columns(
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "!Internal-IP",
            "!External-IP",
            "!OS-Image",
            "!Kernel-Version",
            "!Container-Runtime",
        ),
        _node,
    ),
    "persistentvolumeclaims": Layout(
        _columns(
            "Name",
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            "!VolumeMode",
        ),
        _claim,
    ),
    "persistentvolumes": Layout(
        _columns(
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "!VolumeMode",
        ),
        _volume,
    ),
    "poddisruptionbudgets.policy": Layout(
        _columns("Name", "Min Available", "Max Unavailable", ("Allowed Disruptions", "integer"), "Age"), _budget
    ),
    "pods": Layout(
        _columns("Name", "Ready", "Status", "Restarts", "Age", "!IP", "!Node", "!Nominated Node", "!Readiness Gates"),
        _pod,
    ),
    "priorityclasses.scheduling.k8s.io": Layout(
        _columns("Name", ("Value", "integer"), ("Global-Default", "boolean"), "Age", "PreemptionPolicy"),
        _priority_class,
    ),
    "replicasets.apps": Layout(
        _columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE),
        _replica_set,
    ),
    "replicationcontrollers": Layout(
        _columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE),
        _replica_set,
    ),
    "resourceclaims.resource.k8s.io": Layout(_columns("Name", "State", "Age"), _claim_state),
    "resourceclaimtemplates.resource.k8s.io": Layout(_columns("Name", "Age"), _simple()),
    "resourceslices.resource.k8s.io": Layout(_columns("Name", "Node", "Driver", "Pool", "Age"), _slice),
    "secrets": Layout(_columns("Name", "Type", "Data", "Age"), _secret),
    "serviceaccounts": Layout(_columns("Name", "Secrets", "Age"), _account),
    "services": Layout(_columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "!Selector"), _service),
    "statefulsets.apps": Layout(_columns("Name", "Ready", "Age", "!Containers", "!Images"), _stateful_set),
    "storageclasses.storage.k8s.io": Layout(
        _columns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
}
