"""Simulated users, who create, change and delete pods, nodes and disruption budgets at random."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kubestow.api.core import Node, Pod, Taint, Toleration
from kubestow.api.meta import LabelSelector, ObjectMeta
from kubestow.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import node, pod
from kubestow_lab.fault_simulation.apiserver.server import (
    SimulatedServer,
    ended,
    may_be_bound_by_user,
    with_metadata,
    with_spec,
    with_status,
)
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import WAITS_FOR_NODE, WAITS_ON_PERMIT
from kubestow_lab.fault_simulation.trace import StepRandom, Steps

#: Creates a pod with this part of a spec, and the node that it must be on, "" for any.
CreatePod = Callable[[dict[str, Any], str], None]

_ZONES = ("a", "b")
#: Nodes that are created after the faults, only for the pods that are created with them.
_LATE, _FULL, _NOMINATED = "node-late", "node-full", "node-nominated"
_WAITED_ON, _PROVISIONED, _MOVED = "node-waited-on", "node-provisioned", "node-moved"
#: After so many seconds a pod is deleted that keeps another one from its node.
_DELETED_AFTER = 2.0
#: After so many seconds a node is created that a pod waits for on Permit.
_PROVISIONED_AFTER = 2.0
_TAINT = Taint(key="dedicated", value="yes", effect="NoSchedule")


def pod_reference(pod: Pod) -> ObjectReference:
    """A reference to a pod."""
    return ObjectReference("Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _late_node(name: str, *, cpu: str, **labels: str) -> Node:
    return node(name, cpu=cpu, labels={"zone": "a"} | labels, taints=("late=yes:NoSchedule",))


class Users:
    """Create, change and delete pods, nodes and disruption budgets.

    ``nodes`` and ``pods`` are upper limits of their numbers. ``spec_parts`` make parts of the specs of some pods of the
    first scheduler, and ``pod_constraints`` decides whether pods have any; None draws that.
    """

    def __init__(
        self,
        server: SimulatedServer,
        random: Random,
        *,
        nodes: int,
        pods: int,
        scheduler_names: Sequence[str],
        spec_parts: Sequence[Callable[[], dict[str, Any]]],
        steps: Steps,
        sources: StepRandom,
        pod_constraints: bool | None = None,
    ) -> None:
        self._server, self._random, self._steps = server, random, steps
        self._sources = sources
        self._spec_parts = spec_parts
        self._scheduler_names = scheduler_names
        self._created = 0
        self._max_nodes, self._max_pods = nodes, pods
        #: Whether pods have inter-pod affinity and topology spread constraints.
        self.uses_pod_constraints = random.random() < 0.6
        if pod_constraints is not None:
            self.uses_pod_constraints = pod_constraints
        self._interval = random.choice((0.05, 0.2, 0.5))  # seconds between two changes
        self._actions: dict[Callable[[], None], int] = {
            self.create_pod: 30,
            self.create_pods: 2,
            self.create_bound_pod: 1,
            self.delete_pod: 8,
            self.replace_pod: 2,
            self.finish_pod: 3,
            self.change_labels: 4,
            self.change_annotation: 2,
            self.remove_gates: 6,
            self.change_priority: 2,
            self.add_toleration: 3,
            self.nominate: 1,
            self.bind_manually: 1,
            self.create_node: 3,
            self.delete_node: 2,
            self.replace_node: 1,
            self.taint: 4,
            self.cordon: 4,
            self.resize: 4,
            self.relabel: 2,
            self.budget: 2,
        }

    async def run(self) -> None:
        """Run until cancelled."""
        for _ in range(self._random.randint(1, self._max_nodes)):
            self.create_node()
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            self._random = self._sources.next()
            self._take(self._random.choices(actions, weights)[0])
            await asyncio.sleep(self._random.expovariate(1.0 / self._interval))

    def make_helpful_change(self) -> None:
        """Make one change that can make a pod schedulable."""
        self._random = self._sources.next()
        changes = (
            self.create_node,
            self.taint,
            self.cordon,
            self.resize,
            self.relabel,
            self.delete_node,
            self.remove_gates,
            self.add_toleration,
            self.change_labels,
            self.delete_pod,
            self.finish_pod,
        )
        self._take(self._random.choice(changes))

    def _take(self, action: Callable[[], None]) -> None:
        if self._steps.takes(f"user: {action.__name__.replace('_', ' ')}"):
            action()

    # -- pods ----------------------------------------------------------------------------------------------------

    def create_pod(self, name: str = "", node_name: str = "") -> None:
        if len(self._server.pods()) > self._max_pods:
            self.delete_pod()
            return
        self._created += 1
        draw = self._random
        chance = draw.random
        scheduler = draw.randrange(len(self._scheduler_names))
        # Every host port belongs to one scheduler: when two pods share a port, removing the first frees it for both
        # (semantics 7.4), and schedulers do not see each other's assumed pods.
        ports = (80 + 10 * scheduler + draw.randrange(2),) if chance() < 0.15 and not node_name else ()
        self._server.put(
            pod(
                name or f"pod-{self._created}",
                node=node_name,
                cpu=draw.choice((None, "100m", "1", "2", "3")),
                memory=draw.choice((None, "1Gi", "4Gi")),
                priority=draw.choice((None, 0, 0, 10, 100)),
                labels={"app": draw.choice("xyz")},
                node_selector={"zone": draw.choice(_ZONES)} if chance() < 0.2 else None,
                tolerations=[{"key": "dedicated", "operator": "Exists"}] if chance() < 0.2 else (),
                gates=("quota",) if chance() < 0.15 else (),
                host_ports=ports,
                affinity=self._affinity(),
                spread=self._spread(),
                scheduler=self._scheduler_names[scheduler],
                metadata={
                    "uid": f"uid-{self._created}",
                    "finalizers": ["example.org/keep"] if chance() < 0.1 else [],
                    "generation": 1,
                },
                spec={"preemptionPolicy": "Never" if chance() < 0.1 else "PreemptLowerPriority"}
                | (self._spec_part() if scheduler == 1 and not node_name else {}),
                status={"phase": "Pending"},
            )
        )

    def _spec_part(self) -> dict[str, Any]:
        """Volumes and devices, which only pods of one scheduler use."""
        return self._random.choice(self._spec_parts)() if self._spec_parts and self._random.random() < 0.35 else {}

    def _affinity(self) -> dict[str, Any] | None:
        """A random inter-pod affinity or anti-affinity, or none."""
        kind = self._random.choice((None,) * 8 + ("podAntiAffinity", "podAntiAffinity", "podAffinity"))
        if kind is None or not self.uses_pod_constraints:
            return None
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [self._term()]}}

    def _term(self) -> dict[str, Any]:
        labels = {"app": self._random.choice("xyz")}
        return {
            "topologyKey": self._random.choice(("kubernetes.io/hostname", "zone")),
            "labelSelector": {"matchLabels": labels},
        }

    def _spread(self) -> list[dict[str, Any]]:
        """Random topology spread constraints, or none."""
        if not self.uses_pod_constraints or self._random.random() > 0.15:
            return []
        skew, minimum = self._random.choice((1, 1, 2)), self._random.choice((None, None, 2, 3))
        return [self._term() | {"whenUnsatisfiable": "DoNotSchedule", "maxSkew": skew, "minDomains": minimum}]

    def create_waiting_pod(self, spec: dict[str, Any], node_name: str) -> None:
        """Create a pod of the first scheduler that waits for something; on the node of this name unless it is ""."""
        self._created += 1
        self._server.put(
            pod(
                f"waiting-{self._created}",
                cpu="100m",
                node_selector={"kubernetes.io/hostname": node_name} if node_name else None,
                tolerations=[{"key": "dedicated", "operator": "Exists"}],
                scheduler=self._scheduler_names[1],
                metadata={"uid": f"uid-waiting-{self._created}", "generation": 1},
                spec=spec,
                status={"phase": "Pending"},
            )
        )

    def create_pods(self) -> None:
        for _ in range(self._random.randint(3, 12)):
            self.create_pod()

    def create_bound_pod(self) -> None:
        if (chosen := self._some_node()) is not None:
            self.create_pod(node_name=chosen.metadata.name)

    def delete_pod(self) -> None:
        if (chosen := self._some_pod()) is not None:
            self._server.delete(pod_reference(chosen))

    def replace_pod(self) -> None:
        """Delete a pod and create another one with its name at once."""
        chosen = self._some_pod()
        if chosen is not None:
            self._server.remove(chosen)
            self.create_pod(chosen.metadata.name)

    def finish_pod(self) -> None:
        chosen = self._some_pod(lambda pod: bool(pod.spec.node_name) and not ended(pod))
        if chosen is not None:
            self._server.put(with_status(chosen, phase="Succeeded"))

    def change_labels(self) -> None:
        if (chosen := self._some_pod()) is not None:
            labels = chosen.metadata.labels | {"app": self._random.choice("xyz")}
            self._server.put(with_metadata(chosen, labels=labels))

    def change_annotation(self) -> None:
        if (chosen := self._some_pod()) is not None:
            annotations = chosen.metadata.annotations | {"note": str(self._random.random())}
            self._server.put(with_metadata(chosen, annotations=annotations))

    def remove_gates(self) -> None:
        chosen = self._some_pod(lambda pod: bool(pod.spec.scheduling_gates))
        if chosen is not None:
            self._server.put(with_spec(chosen, scheduling_gates=[]))

    def change_priority(self) -> None:
        if (chosen := self._some_pod(lambda pod: not pod.spec.node_name)) is not None:
            priority = self._random.choice((0, 10, 100))
            if chosen.spec.scheduling_group is None:  # since 1.37 the pods of a group have its priority
                self._server.put(with_spec(chosen, priority=priority))

    def add_toleration(self) -> None:
        if (chosen := self._some_pod(lambda pod: not pod.spec.node_name)) is not None:
            more = Toleration(key="dedicated", operator="Exists")
            self._server.put(with_spec(chosen, tolerations=[*chosen.spec.tolerations, more]))

    def nominate(self) -> None:
        """Nominate a random node for a pending pod, as an external component does."""
        chosen, target = self._some_pod(lambda pod: not pod.spec.node_name), self._some_node()
        if chosen is not None and target is not None:
            self._server.put(with_status(chosen, nominated_node_name=target.metadata.name))

    def bind_manually(self) -> None:
        chosen = self._some_pod(may_be_bound_by_user)
        target = self._some_node()
        if chosen is not None and target is not None:
            self._server.bind(pod_reference(chosen), target.metadata.name, by="user")

    def _some_pod(self, which: Callable[[Pod], bool] = lambda pod: True) -> Pod | None:
        pods = [pod for pod in self._server.pods() if which(pod)]
        return self._random.choice(pods) if pods else None

    # -- nodes ---------------------------------------------------------------------------------------------------

    def create_node(self) -> None:
        nodes = self._server.nodes()
        absent = [name for name in (f"node-{number}" for number in range(self._max_nodes)) if name not in nodes]
        if absent:
            self._server.put(self._node(self._random.choice(absent)))

    def _node(self, name: str) -> Node:
        draw = self._random
        return node(
            name,
            cpu=draw.choice(("2", "4", "8")),
            memory=draw.choice(("8Gi", "16Gi")),
            max_pods=draw.choice((2, 10, 110)),
            labels={"zone": draw.choice(_ZONES)},
            taints=("dedicated=yes:NoSchedule",) if draw.random() < 0.2 else (),
        )

    def delete_node(self) -> None:
        if (chosen := self._some_node()) is not None:
            self._server.remove(chosen)

    def replace_node(self) -> None:
        if (chosen := self._some_node()) is not None:
            self._server.remove(chosen)
            self._server.put(self._node(chosen.metadata.name))

    def taint(self) -> None:
        if (chosen := self._some_node()) is not None:
            self._server.put(with_spec(chosen, taints=[] if chosen.spec.taints else [_TAINT]))

    def cordon(self) -> None:
        if (chosen := self._some_node()) is not None:
            self._server.put(with_spec(chosen, unschedulable=not chosen.spec.unschedulable))

    def resize(self) -> None:
        if (chosen := self._some_node()) is not None:
            self._server.put(with_status(chosen, allocatable=self._node(chosen.metadata.name).status.allocatable))

    def relabel(self) -> None:
        if (chosen := self._some_node()) is not None:
            labels = chosen.metadata.labels | {"zone": self._random.choice(_ZONES)}
            self._server.put(with_metadata(chosen, labels=labels))

    def _some_node(self) -> Node | None:
        nodes = list(self._server.nodes().values())
        return self._random.choice(nodes) if nodes else None

    def helpful_changes(self, *, waits_on_permit: bool) -> tuple[Callable[[], None], ...]:
        """Changes that can make pods schedulable, to be made one after the other.

        ``waits_on_permit``: the plugin that has a pod wait on Permit is enabled.
        """
        of_permit = (self.create_pods_behind_another, self.create_pod_for_provisioned_node) if waits_on_permit else ()
        return (
            self.create_pods_for_late_node,
            self.improve_late_node,
            self.create_pods_for_other_rack,
            self.move_to_other_rack,
            self.create_pods_behind_nominated,
            *of_permit,
        )

    def create_pods_for_late_node(self) -> None:
        """Create a node, a pod that is too large for it, and pods that want another label; nothing else fits there."""
        self._server.put(_late_node(_LATE, cpu="1", shelf="none"))
        self._create_late_pod("large", _LATE, cpu="4")
        for shelf in ("low", "high"):
            self._create_late_pod(shelf, _LATE, node_selector={"shelf": shelf})

    def improve_late_node(self) -> None:
        """Make that node larger and change its label, in one update."""
        self._server.put(_late_node(_LATE, cpu="8", shelf="high"))

    def create_pods_for_other_rack(self) -> None:
        """Create a node and pods that exclude values of its label, the first of them the next value, too."""
        self._server.put(_late_node(_MOVED, cpu="2", rack="none"))
        for name, racks in (("not-high", ["none", "high"]), ("not-low", ["none", "low"])):
            term = {"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": racks}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            self._create_late_pod(name, _MOVED, affinity={"nodeAffinity": required})

    def move_to_other_rack(self) -> None:
        """Change that label, which helps only one of the pods."""
        self._server.put(_late_node(_MOVED, cpu="2", rack="high"))

    def create_pods_behind_another(self) -> None:
        """Create a pod that waits on Permit, and one that fits on its node only without it; then delete the first."""
        self._server.put(_late_node(_FULL, cpu="2"))
        first = self._create_late_pod("first", _FULL, cpu="2", priority=1000, labels={WAITS_ON_PERMIT: "60"})
        self._create_late_pod("second", _FULL, cpu="2")
        self._delete_later(first)

    def create_pod_for_provisioned_node(self) -> None:
        """Create a pod that waits on Permit for a node, which is created before that wait times out."""
        self._server.put(_late_node(_WAITED_ON, cpu="2"))
        self._create_late_pod("provisioned-for", _WAITED_ON, labels={WAITS_FOR_NODE: _PROVISIONED})
        node = _late_node(_PROVISIONED, cpu="1")
        asyncio.get_running_loop().call_later(_PROVISIONED_AFTER, self._server.put, node)

    def create_pods_behind_nominated(self) -> None:
        """Create a pod that is nominated for a node, and one that fits there only without it; then delete the first."""
        self._server.put(_late_node(_NOMINATED, cpu="2"))
        selector = {"shelf": "nowhere"}
        first = self._create_late_pod("nominated", _NOMINATED, cpu="2", priority=1000, node_selector=selector)
        first = self._server.put(with_status(first, nominated_node_name=_NOMINATED))
        self._create_late_pod("behind", _NOMINATED, cpu="2")
        self._delete_later(first)

    def _delete_later(self, pod: Pod) -> None:
        asyncio.get_running_loop().call_later(_DELETED_AFTER, self._server.delete, pod_reference(pod))

    def _create_late_pod(self, name: str, node_name: str, **fields: Any) -> Pod:
        created: Pod = self._server.put(
            pod(
                name,
                **({"cpu": "100m", "node_selector": {"kubernetes.io/hostname": node_name}} | fields),
                tolerations=[{"key": "late", "operator": "Exists"}],
                scheduler=self._scheduler_names[1],
                metadata={"uid": f"uid-{name}", "generation": 1},
                spec={"preemptionPolicy": "Never"},
                status={"phase": "Pending"},
            )
        )
        return created

    # -- budgets -------------------------------------------------------------------------------------------------

    def budget(self) -> None:
        app = self._random.choice("xyz")
        self._server.put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=app, namespace="default"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app})),
                status=PodDisruptionBudgetStatus(disruptions_allowed=self._random.randint(0, 2)),
            )
        )
