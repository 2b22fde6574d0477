"""Who else lives in the cluster: kubelets that run pods and end them, people who change everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Node, Pod, Taint, Toleration
from kubestow.api.meta import LabelSelector, ObjectMeta
from kubestow.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import node, pod
from tests.fault_simulation.rounds import make_rounds
from tests.fault_simulation.server import Server, ended, with_metadata, with_spec, with_status

__all__ = ["Kubelets", "People", "naming"]

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)
_ZONES = ("a", "b")
_TAINT = Taint(key="dedicated", value="yes", effect="NoSchedule")


def naming(pod: Pod) -> ObjectReference:
    """A reference to a pod."""
    return ObjectReference("Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _may_be_bound_by_hand(pod: Pod) -> bool:
    ports = [port for container in pod.spec.containers for port in container.ports]
    dealt_out = ports or pod.spec.volumes or pod.spec.resource_claims
    return not (
        dealt_out or pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp is not None
    )


class Kubelets:
    """All kubelets, and the collector of pods whose node is gone."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server, self._random = server, random
        #: Whether pods run to their end by themselves.
        self.restless = True

    async def live(self) -> NoReturn:
        """Until cancelled."""
        await make_rounds(self._server, self._random, self._look)

    def _look(self) -> bool:
        nodes = self._server.nodes()
        undone = [self._see_to(pod, nodes) for pod in self._server.pods()]
        return any(undone)

    def _see_to(self, pod: Pod, nodes: Container[str]) -> bool:
        """Do something about a pod, or put it off; whether there is anything to be done about it."""
        chance = self._random.random()
        if pod.metadata.deletion_timestamp is not None:
            if chance < 0.3:
                self._server.remove(pod)
            return True
        if not pod.spec.node_name:
            return False
        if pod.spec.node_name not in nodes:
            if chance < 0.2:
                self._server.remove(pod)
            return True
        if pod.status.phase == "Pending":
            if chance < 0.5:
                self._server.put(with_status(pod, phase="Running", start_time=_STARTED))
            return True
        if self.restless and not ended(pod) and chance < 0.01:
            self._server.put(with_status(pod, phase=self._random.choice(("Succeeded", "Failed"))))
        return self.restless


class People:
    """Create, change and delete pods, nodes and budgets.

    There are to be so many ``pods``, and at most so many ``nodes``. ``wishes`` make parts of specs, for some pods of
    the first scheduler.
    """

    def __init__(
        self,
        server: Server,
        random: Random,
        *,
        nodes: int,
        pods: int,
        scheduler_names: Sequence[str],
        wishes: Sequence[Callable[[], dict[str, Any]]],
    ) -> None:
        self._server, self._random = server, random
        self._wishes = wishes
        self._scheduler_names = scheduler_names
        self._named = 0
        self._most_nodes, self._wants = nodes, pods
        #: Whether pods demand anything of the pods around them.
        self.sociable = random.random() < 0.6
        self._pace = random.choice((0.05, 0.2, 0.5))  # seconds between two changes
        self._actions: dict[Callable[[], None], int] = {
            self.create_pod: 30,
            self.create_pods: 2,
            self.create_bound_pod: 1,
            self.delete_pod: 8,
            self.replace_pod: 2,
            self.finish_pod: 3,
            self.change_labels: 4,
            self.change_annotation: 2,
            self.lift_gates: 6,
            self.change_priority: 2,
            self.add_toleration: 3,
            self.nominate: 1,
            self.bind_by_hand: 1,
            self.create_node: 3,
            self.delete_node: 2,
            self.replace_node: 1,
            self.taint: 4,
            self.cordon: 4,
            self.resize: 4,
            self.relabel: 2,
            self.budget: 2,
        }

    async def live(self) -> None:
        """Until cancelled."""
        for _ in range(self._random.randint(1, self._most_nodes)):
            self.create_node()
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            self._random.choices(actions, weights)[0]()
            await asyncio.sleep(self._random.expovariate(1.0 / self._pace))

    def do_a_favour(self) -> None:
        """Change one thing that may help some pod to a node."""
        favours = (
            self.create_node,
            self.taint,
            self.cordon,
            self.resize,
            self.relabel,
            self.delete_node,
            self.lift_gates,
            self.add_toleration,
            self.change_labels,
            self.delete_pod,
            self.finish_pod,
        )
        self._random.choice(favours)()

    # -- pods ----------------------------------------------------------------------------------------------------

    def create_pod(self, name: str = "", node_name: str = "") -> None:
        if len(self._server.pods()) > self._wants:
            self.delete_pod()
            return
        self._named += 1
        draw = self._random
        chance = draw.random
        scheduler = draw.randrange(len(self._scheduler_names))
        # A port has one scheduler that deals it out: of two pods that share one, the first to go frees it for both
        # (semantics 7.4), and with others about that cannot be helped.
        ports = (80 + 10 * scheduler + draw.randrange(2),) if chance() < 0.15 and not node_name else ()
        self._server.put(
            pod(
                name or f"pod-{self._named}",
                node=node_name,
                cpu=draw.choice((None, "100m", "1", "2", "3")),
                memory=draw.choice((None, "1Gi", "4Gi")),
                priority=draw.choice((None, 0, 0, 10, 100)),
                labels={"app": draw.choice("xyz")},
                node_selector={"zone": draw.choice(_ZONES)} if chance() < 0.2 else None,
                tolerations=[{"key": "dedicated", "operator": "Exists"}] if chance() < 0.2 else (),
                gates=("quota",) if chance() < 0.15 else (),
                host_ports=ports,
                affinity=self._company(),
                spread=self._spread(),
                scheduler=self._scheduler_names[scheduler],
                metadata={
                    "uid": f"uid-{self._named}",
                    "finalizers": ["example.org/keep"] if chance() < 0.1 else [],
                    "generation": 1,
                },
                spec={"preemptionPolicy": "Never" if chance() < 0.1 else "PreemptLowerPriority"}
                | (self._wish() if scheduler == 1 and not node_name else {}),
                status={"phase": "Pending"},
            )
        )

    def _wish(self) -> dict[str, Any]:
        """Volumes and devices, which have one scheduler that deals them out."""
        return self._random.choice(self._wishes)() if self._wishes and self._random.random() < 0.35 else {}

    def _company(self) -> dict[str, Any] | None:
        """What a pod demands of the pods around it."""
        kind = self._random.choice((None,) * 8 + ("podAntiAffinity", "podAntiAffinity", "podAffinity"))
        if kind is None or not self.sociable:
            return None
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [self._term()]}}

    def _term(self) -> dict[str, Any]:
        labels = {"app": self._random.choice("xyz")}
        return {
            "topologyKey": self._random.choice(("kubernetes.io/hostname", "zone")),
            "labelSelector": {"matchLabels": labels},
        }

    def _spread(self) -> list[dict[str, Any]]:
        """Over which domains a pod and its like have to be spread."""
        if not self.sociable or self._random.random() > 0.15:
            return []
        skew, minimum = self._random.choice((1, 1, 2)), self._random.choice((None, None, 2, 3))
        return [self._term() | {"whenUnsatisfiable": "DoNotSchedule", "maxSkew": skew, "minDomains": minimum}]

    def create_pods(self) -> None:
        for _ in range(self._random.randint(3, 12)):
            self.create_pod()

    def create_bound_pod(self) -> None:
        if (there := self._some_node()) is not None:
            self.create_pod(node_name=there.metadata.name)

    def delete_pod(self) -> None:
        if (there := self._some_pod()) is not None:
            self._server.delete(naming(there))

    def replace_pod(self) -> None:
        """Delete a pod and create another one of its name at once."""
        there = self._some_pod()
        if there is not None:
            self._server.remove(there)
            self.create_pod(there.metadata.name)

    def finish_pod(self) -> None:
        there = self._some_pod(lambda pod: bool(pod.spec.node_name) and not ended(pod))
        if there is not None:
            self._server.put(with_status(there, phase="Succeeded"))

    def change_labels(self) -> None:
        if (there := self._some_pod()) is not None:
            labels = there.metadata.labels | {"app": self._random.choice("xyz")}
            self._server.put(with_metadata(there, labels=labels))

    def change_annotation(self) -> None:
        if (there := self._some_pod()) is not None:
            annotations = there.metadata.annotations | {"note": str(self._random.random())}
            self._server.put(with_metadata(there, annotations=annotations))

    def lift_gates(self) -> None:
        there = self._some_pod(lambda pod: bool(pod.spec.scheduling_gates))
        if there is not None:
            self._server.put(with_spec(there, scheduling_gates=[]))

    def change_priority(self) -> None:
        if (there := self._some_pod(lambda pod: not pod.spec.node_name)) is not None:
            self._server.put(with_spec(there, priority=self._random.choice((0, 10, 100))))

    def add_toleration(self) -> None:
        if (there := self._some_pod(lambda pod: not pod.spec.node_name)) is not None:
            more = Toleration(key="dedicated", operator="Exists")
            self._server.put(with_spec(there, tolerations=[*there.spec.tolerations, more]))

    def nominate(self) -> None:
        """Somebody else promises a pod a node."""
        there, where = self._some_pod(lambda pod: not pod.spec.node_name), self._some_node()
        if there is not None and where is not None:
            self._server.put(with_status(there, nominated_node_name=where.metadata.name))

    def bind_by_hand(self) -> None:
        there = self._some_pod(_may_be_bound_by_hand)
        where = self._some_node()
        if there is not None and where is not None:
            self._server.bind(naming(there), where.metadata.name, by="somebody")

    def _some_pod(self, which: Callable[[Pod], bool] = lambda pod: True) -> Pod | None:
        pods = [pod for pod in self._server.pods() if which(pod)]
        return self._random.choice(pods) if pods else None

    # -- nodes ---------------------------------------------------------------------------------------------------

    def create_node(self) -> None:
        nodes = self._server.nodes()
        absent = [name for name in (f"node-{number}" for number in range(self._most_nodes)) if name not in nodes]
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
        if (there := self._some_node()) is not None:
            self._server.remove(there)

    def replace_node(self) -> None:
        if (there := self._some_node()) is not None:
            self._server.remove(there)
            self._server.put(self._node(there.metadata.name))

    def taint(self) -> None:
        if (there := self._some_node()) is not None:
            self._server.put(with_spec(there, taints=[] if there.spec.taints else [_TAINT]))

    def cordon(self) -> None:
        if (there := self._some_node()) is not None:
            self._server.put(with_spec(there, unschedulable=not there.spec.unschedulable))

    def resize(self) -> None:
        if (there := self._some_node()) is not None:
            self._server.put(with_status(there, allocatable=self._node(there.metadata.name).status.allocatable))

    def relabel(self) -> None:
        if (there := self._some_node()) is not None:
            labels = there.metadata.labels | {"zone": self._random.choice(_ZONES)}
            self._server.put(with_metadata(there, labels=labels))

    def _some_node(self) -> Node | None:
        nodes = list(self._server.nodes().values())
        return self._random.choice(nodes) if nodes else None

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
