"""Traces as clusters and arrivals of pods, for simulations.

Pods of one template share their manifest and decoded spec: most pods of a trace are alike. Names are made unique by a
number, so that no task of a trace is lost because two have names that are equal in Kubernetes' spelling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kubestow import gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.engine.input.admission import Admission
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import Arrival, Arrivals, JointStart
from kubestow_lab.traces import openb
from kubestow_lab.traces.tables import object_name
from kubestow_lab.traces.trace import Assumptions, ClusterTrace, PodTemplate, Task, TracedNode
from kubestow_lab.workloads import gpu
from kubestow_lab.workloads.openb_shapes import ATTRIBUTION
from kubestow_lab.workloads.workload import RUN_TIME, Object

#: The label of the pods of an application whose number per node is limited, and the resources that limit it.
_APP, _DENSITY = "trace.kubestow.dev/app", "density.trace.kubestow.dev/{}"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
_HOST = "kubernetes.io/hostname"


def load_trace(
    source: str | Path,
    *,
    pods: str = "default",
    nodes: str = "gpu_node",
    assumed: Sequence[str] = (),
    mapping: str | Path | None = None,
    window: tuple[float, float] | None = None,
) -> tuple[ClusterObjects, Arrivals]:
    """The cluster and the pods of a trace, ``FORMAT=PATH`` or the folder of openb.

    ``pods`` and ``nodes`` are short names of lists of openb, such as ``gpuspec33``. ``assumed`` are settings KEY=VALUE
    of the format's assumptions, ``mapping`` the file for ``csv=FILE``. ``window`` is a start and an end in seconds
    after the first arrival: only pods that arrive from the start until before the end are read, and times count from
    the start. Raises InputError for missing and invalid files.
    """
    from kubestow_lab.traces.formats import read_trace

    with gc_tuning.paused():
        text = str(source)
        name, separator, path = text.partition("=")
        if not separator or name == "openb":
            if assumed or mapping:
                raise InputError("--trace", "openb has no assumptions and no mapping")
            trace, settings = _openb(Path(path if separator else text), pods, nodes), Assumptions()
            assumptions = ""
        else:
            trace, settings = read_trace(text, assumed=assumed, mapping=None if mapping is None else Path(mapping))
            assumptions = str(settings)
        # openb counts its times from the start of its record, other traces from any moment.
        start = 0.0 if not assumptions and window is None else trace.start
        if window is not None:
            trace, start = trace.window(*window), start + window[0]
        cluster, arrivals = trace_objects(trace, settings, start=start)
        arrivals.assumptions = assumptions
        if not arrivals.pods:
            raise InputError(text, "has no pods" + (" in the window" if window else ""))
        return cluster, arrivals


def trace_objects(
    trace: ClusterTrace, settings: Assumptions | None = None, *, start: float = 0.0
) -> tuple[ClusterObjects, Arrivals]:
    """The cluster and the pods of a trace that was read; its time ``start``, in seconds, is the time 0 of the pods."""
    cluster = ClusterObjects(nodes=_nodes(trace))
    cluster.summary.read["Node"] = len(cluster.nodes)
    return cluster, _arrivals(trace, start, settings or Assumptions(), cluster.admission)


def _openb(folder: Path, pods: str, nodes: str) -> ClusterTrace:
    node_file, pod_file = openb.list_files(folder, pod_list=pods, node_list=nodes)
    tasks = [
        Task(pod.name, PodTemplate(pod.shape), pod.created, None if pod.duration is None else float(pod.duration))
        for pod in openb.read_pods(pod_file)
    ]
    return ClusterTrace(ATTRIBUTION, [TracedNode(name, shape) for name, shape in openb.read_nodes(node_file)], tasks)


def _nodes(trace: ClusterTrace) -> list[Node]:
    density = {
        _DENSITY.format(task.template.app): task.template.most_per_node
        for task in trace.tasks
        if task.template.most_per_node > 1
    }
    decoded = []
    for traced in trace.nodes:
        manifest = gpu.node(traced.name, traced.shape)
        manifest["metadata"]["labels"] |= traced.labels
        for amounts in (manifest["status"]["capacity"], manifest["status"]["allocatable"]):
            amounts |= {name: str(amount) for name, amount in (*traced.resources.items(), *density.items())}
        decoded.append(convert(Node, manifest))
    return decoded


def _arrivals(trace: ClusterTrace, start: float, settings: Assumptions, admission: Admission) -> Arrivals:
    templates: dict[tuple[PodTemplate, str, str, float | None], tuple[Pod, Object]] = {}
    arrivals = Arrivals(attribution=trace.attribution)
    names: dict[str, int] = {}
    for priority in {task.template.priority for task in trace.tasks} - {0}:
        admission.add("PriorityClass", {"metadata": {"name": _priority_class(priority)}, "value": priority})
    sizes = Counter[tuple[str, float]]()
    for task in trace.tasks:
        sizes[task.job, task.created] += task.count
    jobs: dict[tuple[str, float], str] = {}
    for task in trace.tasks:
        namespace = _namespace(task.queue) if settings.namespaces else gpu.NAMESPACE
        name = job = _unique(task.name, names)
        size, is_first_of_job = task.count, True
        if task.job:
            of_job = task.job, task.created
            is_first_of_job = of_job not in jobs
            job = jobs[of_job] = _unique(task.job, names) if is_first_of_job else jobs[of_job]
            size = sizes[of_job]
        group = job if settings.gangs and task.is_gang else ""
        key = task.template, namespace, group, task.requested_time
        if key not in templates:
            shared = _manifest(task, namespace, group)
            admission.admit(shared, namespace)
            templates[key] = convert(Pod, shared), shared
        template, manifest = templates[key]
        if group and is_first_of_job:
            arrivals.custom_resources.append(pod_group(group, namespace, size))
        joint_start = JointStart(f"{namespace}/{job}", size) if settings.joint_start and task.is_gang else None
        time = max(0.0, float(task.created) - start)
        for index in range(task.count):
            named = name if task.count == 1 else f"{name}-{index}"
            metadata = msgspec.structs.replace(template.metadata, name=named, uid=f"pod/{namespace}/{named}")
            pod = msgspec.structs.replace(template, metadata=metadata)
            arrivals.pods.append(Arrival(pod, time, task.duration, manifest, joint_start=joint_start))
    arrivals.pods.sort(key=lambda arrival: arrival.time)
    arrivals.summary.read["Pod"] = len(arrivals.pods)
    arrivals.summary.left_out.update(trace.left_out)
    if arrivals.custom_resources:
        arrivals.summary.custom["PodGroup"] = len(arrivals.custom_resources)
    return arrivals


def _unique(name: str, names: dict[str, int]) -> str:
    """The name, with a number from the second task on that has it."""
    count = names[name] = names.get(name, 0) + 1
    return name if count == 1 else _unique(f"{name}-{count}", names)


def _namespace(queue: str) -> str:
    return object_name(queue) if queue else gpu.NAMESPACE


def _priority_class(priority: int) -> str:
    return f"priority-{priority}"


def _manifest(task: Task, namespace: str, group: str) -> Object:
    """A Pod of a task without a name."""
    template = task.template
    manifest = gpu.pod("", template.shape)
    manifest["metadata"]["namespace"] = namespace
    if task.requested_time is not None:
        manifest["metadata"]["annotations"] = {RUN_TIME: f"{task.requested_time:g}s"}
    spec, labels = manifest["spec"], manifest["metadata"]["labels"]
    if template.priority:
        spec["priorityClassName"] = _priority_class(template.priority)
    resources: dict[str, int] = dict(template.resources)
    if template.most_per_node > 1:
        resources[_DENSITY.format(template.app)] = 1
    for of_container in (spec["containers"][0]["resources"].setdefault(part, {}) for part in ("requests", "limits")):
        of_container |= {name: str(amount) for name, amount in resources.items()}
    if template.requirements:
        _require(spec, [_expression(each.label, each.operator, each.values) for each in template.requirements])
    if template.most_per_node == 1:
        labels[_APP] = template.app
        term = {"labelSelector": {"matchLabels": {_APP: template.app}}, "topologyKey": _HOST}
        spec.setdefault("affinity", {})["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if group:
        labels[POD_GROUP] = group
    return manifest


def _expression(label: str, operator: str, values: Sequence[str]) -> Mapping[str, object]:
    return {"key": label, "operator": operator} | ({"values": list(values)} if values else {})


def _require(spec: Object, expressions: list[Mapping[str, object]]) -> None:
    """Add requirements to the node affinity of a pod, which may have one for its GPU models."""
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    for term in required["nodeSelectorTerms"]:
        term.setdefault("matchExpressions", []).extend(expressions)


def pod_group(name: str, namespace: str, count: int) -> SourceObject:
    """The PodGroup of so many pods that start together, for pods with the label :data:`POD_GROUP`."""
    api_version, kind = "scheduling.x-k8s.io/v1alpha1", "PodGroup"
    metadata = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"minMember": count}}
    return SourceObject(api_version, kind, msgspec.json.encode(manifest), name, "trace")


def parse_window(text: str) -> tuple[float, float]:
    """``START:END`` in seconds from the first arrival; either may be missing. Raises InputError."""
    first, separator, last = text.partition(":")
    try:
        start, end = float(first or 0), float(last or math.inf)
        if not separator or not 0 <= start < end:
            raise ValueError
    except ValueError:
        raise InputError("--trace-window", f"expected START:END in seconds with START < END, got {text!r}") from None
    return start, end
