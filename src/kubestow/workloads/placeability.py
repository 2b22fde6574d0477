"""Whether some node could take a pending pod: a second opinion, independent of the scheduler.

This judges a run, so it shares nothing with the engine it judges: it takes plain objects as the API server shows them
and asks one rule after the other (:mod:`kubestow.workloads.site`, :mod:`kubestow.workloads.company`): scheduling gates,
cordons, taints, node selector and affinity, resources, the number of pods, host ports, inter-pod (anti-)affinity and
topology spread. What it can't judge (volume claims, resource claims, labels of namespaces) its verdict says instead of
guessing. Preemption is left out: a pod that could only run in another's place counts as not placeable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubestow.workloads import company
from kubestow.workloads.site import Site, forbidden, requests
from kubestow.workloads.workload import Object

__all__ = ["Shortage", "Verdict", "holds_resources", "placeable"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that a pod asks for in vain: it asks ``asked``, which ``nodes`` of the nodes considered can't give;
    the largest of them has ``largest``. Millicores for CPU, units otherwise."""

    asked: int
    nodes: int
    largest: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands between a pod and the nodes.

    ``nodes`` could take it now. ``excluded`` counts the nodes it may not use, by what forbids it. Of the ``usable``
    others ``large_enough`` would do if they were empty; on these (on all usable ones, if none is large enough) it meets
    ``shortages`` by resource, and ``conflicts`` with other pods counted by what they are. One node may be short of
    several things.
    """

    nodes: tuple[str, ...]
    gates: tuple[str, ...]
    unjudged: tuple[str, ...]
    excluded: Mapping[str, int]
    usable: int
    large_enough: int
    shortages: Mapping[str, Shortage]
    conflicts: Mapping[str, int]

    @property
    def could_run(self) -> bool:
        """Whether some node could take the pod as it is: if it is pending, the scheduler missed it."""
        return bool(self.nodes) and not self.gates and not self.unjudged


def placeable(pending_pods: Sequence[Object], nodes: Iterable[Object], bound_pods: Iterable[Object]) -> list[Verdict]:
    """The verdict on each pending pod, in their order, each judged as if it were the only one.

    Bound pods that have finished, or whose node is gone, take nothing. Raises InvalidQuantity for an unreadable
    quantity.
    """
    sites = {node["metadata"]["name"]: Site(node) for node in nodes}
    for pod in bound_pods:
        node_name = pod["spec"].get("nodeName")
        if node_name in sites and holds_resources(pod):
            sites[node_name].add(pod)
    verdicts: dict[str, Verdict] = {}
    for pod in pending_pods:
        if _shape(pod) not in verdicts:
            verdicts[_shape(pod)] = _judge(pod, list(sites.values()))
    return [verdicts[_shape(pod)] for pod in pending_pods]


def holds_resources(pod: Object) -> bool:
    """Whether a bound pod has not yet run to its end."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _shape(pod: Object) -> str:
    """All that a verdict depends on: pods equal in this are judged once."""
    metadata = pod["metadata"]
    return json.dumps([metadata.get("namespace"), metadata.get("labels"), pod["spec"]], sort_keys=True)


def _judge(pod: Object, sites: list[Site]) -> Verdict:
    reasons = [forbidden(pod, site) for site in sites]
    usable = [site for site, reason in zip(sites, reasons, strict=True) if not reason]
    asked = {name: amount for name, amount in requests(pod).items() if amount > 0}
    large_enough = [site for site in usable if _has(site.allocatable, asked)]
    rules = company.rules(pod, sites)
    conflicts = {
        site.name: [*site.conflicts(pod), *filter(None, (rule(site) for rule in rules))]
        for site in large_enough or usable
    }
    return Verdict(
        nodes=tuple(site.name for site in large_enough if _has(site.free, asked) and not conflicts[site.name]),
        gates=tuple(gate["name"] for gate in pod["spec"].get("schedulingGates") or []),
        unjudged=_unjudged(pod),
        excluded=Counter(filter(None, reasons)),
        usable=len(usable),
        large_enough=len(large_enough),
        shortages=_shortages(asked, large_enough or usable),
        conflicts=Counter(conflict for met in conflicts.values() for conflict in met),
    )


def _has(room: Mapping[str, int], asked: Mapping[str, int]) -> bool:
    return all(room[name] >= amount for name, amount in asked.items())


def _shortages(asked: Mapping[str, int], sites: list[Site]) -> dict[str, Shortage]:
    return {
        name: Shortage(asked=amount, nodes=short, largest=max(site.allocatable[name] for site in sites))
        for name, amount in asked.items()
        if (short := sum(site.free[name] < amount for site in sites))
    }


def _unjudged(pod: Object) -> tuple[str, ...]:
    spec = pod["spec"]
    claims = any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in spec.get("volumes") or [])
    return tuple(
        name
        for name, present in (
            ("volume claims", claims),
            ("resource claims", bool(spec.get("resourceClaims"))),
            ("namespace selectors", company.unjudged(pod)),
        )
        if present
    )
