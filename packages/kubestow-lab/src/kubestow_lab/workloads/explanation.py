"""Explanations for people: what a pod requests, and why it is pending.

Pods with the same requests and the same kind of reason share one explanation; where their numbers differ, it has the
largest of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from kubestow.rules.node_with_pods import pod_requests
from kubestow_lab.workloads.feasibility import Feasibility, Shortage
from kubestow_lab.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow_lab.workloads.workload import Object

__all__ = ["PendingReason", "describe_requests", "explain", "pending_reason"]

_NAMES = {"cpu": "CPU", "memory": "memory", GPU: "GPUs", GPU_MILLI: "GPU capacity"}


class PendingReason(StrEnum):
    """Why a pod is pending, in the order in which the reasons are checked."""

    GATED = "gated"
    FEASIBLE = "feasible"
    UNCHECKED = "unchecked"
    NO_ELIGIBLE_NODE = "no eligible node"
    TOO_LARGE = "too large"
    NO_FREE_CAPACITY = "no free capacity"


def pending_reason(result: Feasibility) -> PendingReason:
    """The main reason in the result of a feasibility check."""
    if result.gates:
        return PendingReason.GATED
    if result.nodes:
        return PendingReason.UNCHECKED if result.unchecked else PendingReason.FEASIBLE
    if not result.eligible:
        return PendingReason.NO_ELIGIBLE_NODE
    return PendingReason.NO_FREE_CAPACITY if result.large_enough else PendingReason.TOO_LARGE


def describe_requests(pod: Object) -> str:
    """A short description of a pod's GPUs, other extended resources, node selector and required node affinity."""
    node_constraints = ", ".join(_node_constraints(pod["spec"]))
    return ", ".join(_devices(pod_requests(pod))) + (f" on {node_constraints}" if node_constraints else "")


def explain(results: Sequence[Feasibility]) -> str:
    """A sentence, without a full stop, that explains why pods with the same pending reason are pending."""
    match pending_reason(results[0]):
        case PendingReason.GATED:
            return f"waiting for scheduling gates: {_distinct(gate for r in results for gate in r.gates)}"
        case PendingReason.FEASIBLE:
            return f"{_node_count(len(r.nodes) for r in results)} feasible, for example {results[0].nodes[0]}"
        case PendingReason.UNCHECKED:
            return f"not checked: {_distinct(name for r in results for name in r.unchecked)}"
        case PendingReason.NO_ELIGIBLE_NODE:
            counts = _largest(result.unresolvable for result in results)
            return f"no eligible node: {_format_counts(counts)}" if counts else "the cluster has no nodes"
        case PendingReason.TOO_LARGE:
            return f"too large for every eligible node: {_oversize(results)}"
        case _:
            return _no_free_capacity(results)


def _devices(requested: Mapping[str, int]) -> Iterator[str]:
    gpus = requested.get(GPU, 0)
    if gpus:
        yield f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
    elif requested.get(GPU_MILLI):
        yield "a GPU share"
    others = [f"{n} {name}" for name, n in sorted(requested.items()) if n and "/" in name and name not in _NAMES]
    yield from others
    if not gpus and not requested.get(GPU_MILLI) and not others:
        yield "CPU and memory"


def _node_constraints(spec: Object) -> Iterator[str]:
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield f"{key}={value}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [" and ".join(_requirements(term)) for term in required.get("nodeSelectorTerms") or []]
    if terms:
        yield " or ".join(terms)


def _requirements(term: Object) -> Iterator[str]:
    for requirement in [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]:
        values = requirement.get("values") or []
        if (requirement["key"], requirement["operator"]) == (GPU_MODEL, "In"):
            yield " or ".join(values)
        else:
            yield f"{requirement['key']} {requirement['operator']} {', '.join(values)}".rstrip()


def _oversize(results: Sequence[Feasibility]) -> str:
    """The resources of which a pod requests more than any node has, or the combination of resources."""
    oversize: dict[str, Shortage] = {}
    for result in results:
        for name, shortage in result.shortages.items():
            smallest = oversize.get(name)
            if shortage.requested > shortage.largest and (not smallest or shortage.requested < smallest.requested):
                oversize[name] = shortage
    if GPU in oversize:
        oversize.pop(GPU_MILLI, None)
    if not oversize:
        return f"none has enough {_distinct(_NAMES.get(n, n) for r in results for n in r.shortages)} together"
    return ", ".join(
        f"requests {_amount(name, shortage.requested)}, the largest node has {_amount(name, shortage.largest)}"
        for name, shortage in oversize.items()
    )


def _no_free_capacity(results: Sequence[Feasibility]) -> str:
    short = _largest({name: shortage.nodes for name, shortage in result.shortages.items()} for result in results)
    if GPU_MILLI in short:
        short.pop(GPU, None)
    counts = Counter({f"Insufficient {_NAMES.get(name, name)}": n for name, n in short.items()})
    counts |= _largest(result.conflicts for result in results)
    large_enough = _node_count(result.large_enough for result in results)
    return f"no free capacity: of {large_enough} with enough allocatable, {_format_counts(counts)}"


def _largest(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    largest = Counter[str]()
    for count in counts:
        largest |= Counter(count)
    return largest


def _node_count(counts: Iterable[int]) -> str:
    distinct = sorted(set(counts))
    nodes = "1 node" if distinct[-1] == 1 else f"{distinct[-1]:,} nodes"
    return nodes if len(distinct) == 1 else f"up to {nodes}"


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in counts.most_common())


def _distinct(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _amount(resource: str, amount: int) -> str:
    match resource:
        case "cpu":
            return f"{amount / 1000:g} cores"
        case "memory":
            return f"{amount / 2**30:,.4g} GiB memory" if amount < 2**40 else f"{amount / 2**40:,.4g} TiB memory"
        case _:
            return f"{amount:,} {_NAMES.get(resource, resource)}"
