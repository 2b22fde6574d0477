"""Capacity reports in cluster-capacity's forms: a number, text, and its JSON and YAML document.

Reports of several templates, gangs and preemption have the same form, with a list entry or a paragraph per template.
What cluster-capacity has no field for is in fields of its own: ``status.pods[].failReason`` and ``status.evictions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubestow_lab.capacity.estimate import Capacity
from kubestow_lab.capacity.mix import CapacityMix

Object = dict[str, Any]


def document(capacity: Capacity, created: str) -> Object:
    """The report as cluster-capacity's JSON, with its field names; ``created`` is its timestamp."""
    return _document([capacity], capacity.max_limit, capacity, created)


def mix_document(mix: CapacityMix, created: str) -> Object:
    """The report of several templates; ``failReason`` is that of the template that dropped out last."""
    options = mix.options
    report = _document(mix.capacities, options.common.max_limit, mix.last, created)
    report["spec"] |= {"order": options.order, "preemption": options.preemption, "gangSize": options.gang_size}
    for pods, capacity in zip(report["status"]["pods"], mix.capacities, strict=True):
        pods["failReason"] = _fail_reason(capacity)
    report["status"]["evictions"] = [
        {"pod": eviction.pod.key, "nodeName": eviction.node_name, "preemptor": eviction.preemptor.key}
        for eviction in mix.evictions
    ]
    return report


def _document(capacities: Sequence[Capacity], max_limit: int, last: Capacity, created: str) -> Object:
    templates = [capacity.template for capacity in capacities]
    pods: list[Object] = []
    for capacity in capacities:
        replicas = [{"nodeName": name, "replicas": count} for name, count in capacity.per_node().items()]
        pods.append({"podName": capacity.template.name, "replicasOnNodes": replicas or None, "failSummary": None})
    return {
        "spec": {
            "templates": [template.manifest for template in templates],
            "replicas": max_limit,
            "podRequirements": [template.requirements() for template in templates],
        },
        "status": {
            "creationTimestamp": created,
            "replicas": sum(capacity.replicas for capacity in capacities),
            "failReason": _fail_reason(last),
            "pods": pods,
        },
    }


def _fail_reason(capacity: Capacity) -> Object:
    return {"failType": capacity.reason.type, "failMessage": capacity.reason.message}


def text(capacity: Capacity, *, verbose: bool) -> str:
    """The report for people: the number, or with ``verbose`` requirements, reason and distribution as well."""
    return "\n".join(_verbose(capacity)) if verbose else str(capacity.replicas)


def mix_text(mix: CapacityMix, *, verbose: bool) -> str:
    """The report of several templates for people; without ``verbose`` the number of each, and of evicted pods."""
    if verbose:
        lines = [line for capacity in mix.capacities for line in (*_verbose(capacity), "")][:-1]
    else:
        lines = [f"{capacity.template.name}: {capacity.replicas}" for capacity in mix.capacities]
    if mix.evictions:
        lines += ["", "Evicted pods:"] if verbose else [f"evicted pods: {len(mix.evictions)}"]
    if verbose:
        lines += [f"\t- {each.pod.key} on {each.node_name}, for {each.preemptor.name}" for each in mix.evictions]
    return "\n".join(lines)


def _verbose(capacity: Capacity) -> Iterator[str]:
    requirements, name = capacity.template.requirements(), capacity.template.name
    resources = requirements["resources"]
    yield f"{name} pod requirements:"
    yield f"\t- CPU: {resources['primaryResources']['cpu']}"
    yield f"\t- Memory: {resources['primaryResources']['memory']}"
    if resources["scalarResources"]:
        scalars = " ".join(f"{key}:{value}" for key, value in sorted(resources["scalarResources"].items()))
        yield f"\t- ScalarResources: map[{scalars}]"
    if requirements["nodeSelectors"]:
        selectors = ",".join(f"{key}={value}" for key, value in sorted(requirements["nodeSelectors"].items()))
        yield f"\t- NodeSelector: {selectors}"
    yield ""
    yield f"The cluster can schedule {capacity.replicas} instance(s) of the pod {name}."
    yield ""
    yield f"Termination reason: {capacity.reason.type}: {capacity.reason.message}"
    if capacity.replicas:
        yield ""
        yield "Pod distribution among nodes:"
        yield name
        for node, count in capacity.per_node().items():
            yield f"\t- {node}: {count} instance(s)"
