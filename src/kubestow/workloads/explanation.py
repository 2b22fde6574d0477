"""A verdict in plain words: what a pod asks for, and why it has no node.

Several pods that ask alike and meet the same kind of obstacle are explained in one sentence; where their figures
differ, each figure is the largest that one of them meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from kubestow.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow.workloads.placeability import Shortage, Verdict
from kubestow.workloads.site import requests
from kubestow.workloads.workload import Object

__all__ = ["Obstacle", "asks", "obstacle", "why"]

_NAMES = {"cpu": "CPU", "memory": "memory", GPU: "GPUs", GPU_MILLI: "GPU capacity"}


class Obstacle(StrEnum):
    """The kind of thing that keeps a pod pending, the most decisive first."""

    GATED = "gated"
    MISSED = "missed"
    UNJUDGED = "unjudged"
    EXCLUDED = "excluded"
    TOO_LARGE = "too large"
    NO_ROOM = "no room"


def obstacle(verdict: Verdict) -> Obstacle:
    """The kind of obstacle a verdict comes down to."""
    if verdict.gates:
        return Obstacle.GATED
    if verdict.nodes:
        return Obstacle.UNJUDGED if verdict.unjudged else Obstacle.MISSED
    if not verdict.usable:
        return Obstacle.EXCLUDED
    return Obstacle.NO_ROOM if verdict.large_enough else Obstacle.TOO_LARGE


def asks(pod: Object) -> str:
    """What a pod asks for in a few words: its GPUs and other extended resources, and where it insists to be."""
    where = ", ".join(_places(pod["spec"]))
    return ", ".join(_devices(requests(pod))) + (f" on {where}" if where else "")


def why(verdicts: Sequence[Verdict]) -> str:
    """Why pods with these verdicts, all of one kind of obstacle, have no node: one sentence, without a full stop."""
    match obstacle(verdicts[0]):
        case Obstacle.GATED:
            return f"waits for scheduling gate {_listing(gate for v in verdicts for gate in v.gates)} to be lifted"
        case Obstacle.MISSED:
            return f"{_most(len(v.nodes) for v in verdicts)} could take it now, {verdicts[0].nodes[0]} among them"
        case Obstacle.UNJUDGED:
            return f"can't be judged here: it depends on {_listing(name for v in verdicts for name in v.unjudged)}"
        case Obstacle.EXCLUDED:
            counts = _largest(verdict.excluded for verdict in verdicts)
            return f"no node qualifies: {_counted(counts)}" if counts else "the cluster has no nodes"
        case Obstacle.TOO_LARGE:
            return f"no node it may use is large enough: {_oversize(verdicts)}"
        case _:
            return _no_room(verdicts)


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


def _places(spec: Object) -> Iterator[str]:
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


def _oversize(verdicts: Sequence[Verdict]) -> str:
    """Each resource of which a pod asks more than any node has; there may be none, only combinations that none has."""
    beyond: dict[str, Shortage] = {}
    for verdict in verdicts:
        for name, shortage in verdict.shortages.items():
            if shortage.asked > shortage.largest and (name not in beyond or shortage.asked < beyond[name].asked):
                beyond[name] = shortage
    if GPU in beyond:
        beyond.pop(GPU_MILLI, None)
    if not beyond:
        return f"none has enough {_listing(_NAMES.get(n, n) for v in verdicts for n in v.shortages)} together"
    return ", ".join(
        f"it asks for {_amount(name, shortage.asked)}, the largest has {_amount(name, shortage.largest)}"
        for name, shortage in beyond.items()
    )


def _no_room(verdicts: Sequence[Verdict]) -> str:
    short = _largest({name: shortage.nodes for name, shortage in verdict.shortages.items()} for verdict in verdicts)
    if GPU_MILLI in short:
        short.pop(GPU, None)
    counts = Counter({f"short of {_NAMES.get(name, name)}": n for name, n in short.items()})
    counts |= _largest(verdict.conflicts for verdict in verdicts)
    return f"no room left: of {_most(v.large_enough for v in verdicts)} large enough, {_counted(counts)}"


def _largest(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The largest count of each thing."""
    largest = Counter[str]()
    for count in counts:
        largest |= Counter(count)
    return largest


def _most(counts: Iterable[int]) -> str:
    distinct = sorted(set(counts))
    nodes = "1 node" if distinct[-1] == 1 else f"{distinct[-1]:,} nodes"
    return nodes if len(distinct) == 1 else f"up to {nodes}"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in counts.most_common())


def _listing(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _amount(resource: str, amount: int) -> str:
    match resource:
        case "cpu":
            return f"{amount / 1000:g} cores"
        case "memory":
            return f"{amount / 2**30:,.4g} GiB memory" if amount < 2**40 else f"{amount / 2**40:,.4g} TiB memory"
        case _:
            return f"{amount:,} {_NAMES.get(resource, resource)}"
