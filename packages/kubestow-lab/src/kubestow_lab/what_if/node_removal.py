"""The pods of nodes that are drained or lost: which come back where, and which do not.

A drain evicts as ``kubectl drain --ignore-daemonsets --delete-emptydir-data`` does: the nodes are cordoned, pods
without a controller block it unless it is forced, and disruption budgets are kept. It goes in rounds: each evicts what
the budgets allow, and the scheduler places the replacements, which then count as healthy; one that stays pending uses
its budget up. A loss takes the nodes away at once with all their pods, local device slices and claims for their devices
included; volumes that only a lost node can reach keep their affinity, so pods that need them stay pending.

The replacements are scheduled by a :class:`~kubestow_lab.simulation.simulation.Simulation`, so they may preempt others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.api.core import Node, Pod, Taint
from kubestow.api.resource import ResourceClaim, ResourceSlice
from kubestow.api.selector_text import parse_selector
from kubestow.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from kubestow.engine.cluster_api.replacements import (
    belongs_to,
    released,
    replacement,
    replacing_controller,
    with_own_claims,
)
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions, similar
from kubestow.errors import InputError, InvalidSelector
from kubestow.rules.disruption import EvictionBudgets
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome
from kubestow_lab.simulation.plugin_failures import PluginFailure
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.what_if.pod_fates import Fate, NodeRemoval, PodFate

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
#: The kinds that the scheduler and the controllers change; the others stay as they are from round to round.
_CHANGING_KINDS = (PersistentVolume, PersistentVolumeClaim, ResourceClaim)


def nodes_named(cluster: ClusterObjects, names: Iterable[str]) -> frozenset[str]:
    """The names, each of a node of the cluster. Raises InputError."""
    known = {node.metadata.name for node in cluster.nodes}
    wanted = frozenset(names)
    for name in sorted(wanted - known):
        raise InputError(f"node {name}", f"no such node in the cluster{similar(name, known)}")
    return wanted


def nodes_in_zone(cluster: ClusterObjects, zone: str) -> frozenset[str]:
    """The names of the nodes in a zone. Raises InputError if there are none."""
    zones: dict[str, set[str]] = {}
    for node in cluster.nodes:
        labels = node.metadata.labels
        found = next((labels[key] for key in _ZONES if key in labels), None)
        if found is not None:
            zones.setdefault(found, set()).add(node.metadata.name)
    if zone not in zones:
        expected = f"the zones are: {', '.join(sorted(zones))}" if zones else f"no node has the label {_ZONES[0]}"
        raise InputError(f"zone {zone}", f"no node is in it, {expected}")
    return frozenset(zones[zone])


def nodes_selected(cluster: ClusterObjects, selector: str) -> frozenset[str]:
    """The names of the nodes that a label selector such as ``pool=gpu`` selects. Raises InputError for none."""
    try:
        parsed = parse_selector(selector)
    except InvalidSelector as error:
        raise InputError(f"selector {selector!r}", str(error)) from None
    found = frozenset(node.metadata.name for node in cluster.nodes if parsed.matches(node.metadata.labels))
    if not found:
        raise InputError(f"selector {selector!r}", "selects no node")
    return found


def drain(
    cluster: ClusterObjects,
    nodes: frozenset[str],
    options: SchedulerOptions | None = None,
    *,
    force: bool = False,
    simulation: SimulationOptions | None = None,
) -> NodeRemoval:
    """Drain nodes; with ``force``, pods without a controller are evicted as well, and lost.

    Raises ConfigurationError and PluginError.
    """
    nodes_named(cluster, nodes)
    cordoned = list(cluster.nodes)
    for position, node in enumerate(cordoned):
        if node.metadata.name in nodes:
            taints = node.spec.taints
            if all(taint.key != _UNSCHEDULABLE.key for taint in taints):
                taints = [*taints, _UNSCHEDULABLE]
            spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=taints)
            cordoned[position] = msgspec.structs.replace(node, spec=spec)
    removal = _Removal(cluster, nodes, cordoned, list(cluster.objects), options, simulation)
    waiting: list[Pod] = []
    for pod in removal.affected:
        if removal.ends_with_node(pod):
            continue
        if pod.metadata.controller is None and not force:
            removal.settle(pod, Fate.BLOCKED, "it has no controller that would replace it")
        else:
            waiting.append(pod)
    budgets = EvictionBudgets(cluster.objects)
    while waiting:
        batch = budgets.evictable(waiting)
        if not batch:
            break
        removal.evict(batch)
        budgets.use(pod for pod in batch if removal.fates[pod.metadata.uid].fate is not Fate.RESCHEDULED)
        evicted = {pod.metadata.uid for pod in batch}
        waiting = [pod for pod in waiting if pod.metadata.uid not in evicted]
    for pod in waiting:
        removal.settle(pod, Fate.BLOCKED, budgets.reason(pod))
    return removal.result("drain")


def lose(
    cluster: ClusterObjects,
    nodes: frozenset[str],
    options: SchedulerOptions | None = None,
    *,
    simulation: SimulationOptions | None = None,
) -> NodeRemoval:
    """Lose nodes, all at once. Raises ConfigurationError, PluginError, and InputError if no node is left."""
    nodes_named(cluster, nodes)
    left = [node for node in cluster.nodes if node.metadata.name not in nodes]
    if not left:
        raise InputError("nodes", "all nodes of the cluster are lost, expected at least one to be left")
    objects = [
        obj
        for obj in cluster.objects
        if not (isinstance(obj, CSINode) and obj.metadata.name in nodes)
        and not (isinstance(obj, ResourceSlice) and obj.spec.node_name in nodes)
    ]
    removal = _Removal(cluster, nodes, left, objects, options, simulation)
    removal.evict([pod for pod in removal.affected if not removal.ends_with_node(pod)])
    return removal.result("loss")


@dataclass(slots=True)
class _Removal:
    """A cluster while pods of some nodes are evicted and replaced. ``affected`` are the pods of these nodes."""

    cluster: ClusterObjects
    names: frozenset[str]
    nodes: Sequence[Node]
    objects: list[Any]
    options: SchedulerOptions | None
    simulation: SimulationOptions | None
    affected: list[Pod] = field(init=False)
    fates: dict[str, PodFate] = field(default_factory=dict)
    _pods: list[Pod] = field(init=False)
    #: The pods that were evicted, each with the uid of its replacement ("" if there is none).
    _replaced: list[tuple[Pod, str]] = field(default_factory=list)
    _preempted: dict[str, PodOutcome] = field(default_factory=dict)
    _rounds: int = 0
    _remarks: dict[str, None] = field(default_factory=dict)
    _failures: list[PluginFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pods = list(self.cluster.pods)
        placed = (pod for pod in self._pods if pod.spec.node_name in self.names)
        self.affected = sorted(placed, key=lambda pod: -(pod.spec.priority or 0))

    def settle(self, pod: Pod, fate: Fate, reason: str = "", new_node: str = "") -> None:
        """Record the fate of a pod, instead of what was recorded before."""
        metadata, controller = pod.metadata, pod.metadata.controller
        self.fates[metadata.uid] = PodFate(
            namespace=metadata.namespace,
            name=metadata.name,
            owner=f"{controller.kind}/{controller.name}" if controller else "",
            priority=pod.spec.priority or 0,
            node=pod.spec.node_name,
            fate=fate,
            new_node=new_node,
            reason=reason,
        )

    def ends_with_node(self, pod: Pod) -> bool:
        """Whether a pod belongs to its node or ends anyway; its fate is recorded then."""
        controller = pod.metadata.controller
        if pod.metadata.deletion_timestamp is not None:
            self.settle(pod, Fate.ENDS_WITH_NODE, "it is being deleted already")
        elif controller is not None and controller.kind in ("DaemonSet", "Node"):
            self.settle(pod, Fate.ENDS_WITH_NODE)
        else:
            return False
        return True

    def evict(self, pods: Sequence[Pod]) -> None:
        """Delete pods, have them replaced, and run the scheduler; the fates of all pods so far are recorded anew."""
        gone = {pod.metadata.uid for pod in pods}
        existing = {(pod.metadata.namespace, pod.metadata.name) for pod in self._pods}
        arrivals = Arrivals()
        claims = {
            (type(obj), obj.metadata.namespace, obj.metadata.name): obj
            for obj in self.objects
            if isinstance(obj, (ResourceClaim, PersistentVolumeClaim))
        }
        for pod in pods:
            controller, created = replacing_controller(pod), None
            if controller is not None:
                created = replacement(pod, controller, existing, pod.metadata.creation_timestamp)
                created, own_claims = with_own_claims(created, pod, lambda *key: claims.get(key))
                arrivals.objects += own_claims
            self._replaced.append((pod, "" if created is None else created.metadata.uid))
            if created is not None:
                existing.add((created.metadata.namespace, created.metadata.name))
                arrivals.pods.append(Arrival(created, 0.0, None, {}))
        names = {"", *(node.metadata.name for node in self.nodes)}
        kept = [pod for pod in self._pods if pod.metadata.uid not in gone and pod.spec.node_name in names]
        objects = [
            released(obj, gone) if isinstance(obj, ResourceClaim) else obj
            for obj in self.objects
            if not belongs_to(obj, gone)
        ]
        cluster = self.cluster.altered(nodes=self.nodes, pods=kept, objects=objects)
        options, simulation = self.options or SchedulerOptions(), self.simulation or SimulationOptions(ties="name")
        result = Simulation(
            cluster, arrivals, options.configuration, options.plugins, options.gates, options=simulation
        ).run()
        self._rounds += 1
        self._pods = result.api.pods()
        self.objects = [obj for obj in objects if not isinstance(obj, _CHANGING_KINDS)]
        self.objects += (obj for kind in _CHANGING_KINDS for obj in result.api.objects(kind).values())
        self._remarks |= dict.fromkeys(result.remarks)
        self._failures += result.plugin_failures
        self._record(result)

    def _record(self, result: SimulationResult) -> None:
        outcomes = {(outcome.namespace, outcome.name): outcome for outcome in result.outcomes}
        pods = {pod.metadata.uid: pod for pod in self._pods}
        for pod, uid in self._replaced:
            current = pods.get(uid)
            if not uid:
                self.settle(pod, Fate.LOST, "it has no controller that would replace it")
            elif current is None:
                self.settle(pod, Fate.PENDING, "its replacement was evicted for a pod of higher priority")
            elif current.spec.node_name:
                self.settle(pod, Fate.RESCHEDULED, new_node=current.spec.node_name)
            else:
                outcome = outcomes.get((current.metadata.namespace, current.metadata.name))
                self.settle(pod, Fate.PENDING, "" if outcome is None else outcome.message)
        for outcome in result.outcomes:
            if outcome.state is OutcomeState.PREEMPTED:
                self._preempted[outcome.key] = outcome

    def result(self, cause: str) -> NodeRemoval:
        """The fates, in the order of priority."""
        return NodeRemoval(
            cause=cause,
            nodes=tuple(sorted(self.names)),
            pods=tuple(self.fates[pod.metadata.uid] for pod in self.affected),
            preempted=tuple(self._preempted.values()),
            after=self.cluster.altered(nodes=self.nodes, pods=self._pods, objects=self.objects),
            rounds=self._rounds,
            remarks=tuple(self._remarks),
            plugin_failures=tuple(self._failures),
        )
