"""What decides about admission at one time: ClusterQueues in their cohorts, flavors, and the Workloads with quota.

An :class:`AdmissionState` changes in place. What is tried out, such as a preemption, is undone at the end of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kubestow.api.selectors import Selector, compile_selector
from kubestow_contrib.kueue.objects import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    ResourceFlavor,
)
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, Quantities, QuotaNode, quotas_of, root_of
from kubestow_contrib.kueue.topology import FlavorTopology, TopologyUsage
from kubestow_contrib.kueue.workload_info import WorkloadInfo

_PROVISIONING = "kueue.x-k8s.io/provisioning-request"


class ClusterQueueNode(QuotaNode):
    """A ClusterQueue with its policies and the Workloads that have its quota, by key.

    ``generation`` grows whenever quota may have become available. ``problem`` says why it admits nothing; "" if it
    does.
    """

    def __init__(self, obj: ClusterQueue) -> None:
        spec = obj.spec
        super().__init__(obj.metadata.name, quotas_of(spec.resource_groups), spec.fair_sharing.as_number())
        self.groups = spec.resource_groups
        self.preemption, self.fungibility = spec.preemption, spec.flavor_fungibility
        self.is_strict = spec.queueing_strategy == "StrictFIFO"
        self.is_fair_by_usage = spec.admission_scope.admission_mode == "UsageBasedAdmissionFairSharing"
        selector = spec.namespace_selector
        self.namespaces: Selector | None = None if selector is None else compile_selector(selector)
        self.checks = obj.checks
        self.workloads: dict[str, WorkloadInfo] = {}
        #: The topologies of its flavors that have one, shared with other queues.
        self.topologies: dict[str, FlavorTopology] = {}
        #: The flavors whose nodes are only provisioned after quota is reserved, so that topology is assigned later.
        self.provisioned: set[str] = set()
        self.generation = 1
        self.problem = ""
        self.subtree_quota = {fr: quota.nominal for fr, quota in self.quotas.items()}

    @property
    def is_topology_only(self) -> bool:
        """Whether all its flavors have a topology, so that pods are placed by it even if they do not ask for it."""
        names = {flavor.name for group in self.groups for flavor in group.flavors}
        return bool(self.topologies) and names <= set(self.topologies)

    def group_of(self, resource: str) -> int | None:
        """The index of the resource group that covers a resource."""
        return next((i for i, group in enumerate(self.groups) if resource in group.covered_resources), None)

    def usable(self, fr: FlavorResource) -> int:
        """What is available, at least 0."""
        return max(0, self.available(fr))

    def fits(self, usage: Mapping[FlavorResource, int]) -> bool:
        """Whether all amounts are available."""
        return all(self.usable(fr) >= wanted for fr, wanted in usage.items())

    def add(self, usage: Quantities) -> None:
        """Use amounts."""
        for fr, used in usage.items():
            self.add_usage(fr, used)

    def remove(self, usage: Quantities) -> None:
        """Free amounts."""
        for fr, used in usage.items():
            self.remove_usage(fr, used)

    @contextmanager
    def with_usage(self, usage: Quantities) -> Iterator[None]:
        """Use amounts within a block."""
        self.add(usage)
        try:
            yield
        finally:
            self.remove(usage)

    @contextmanager
    def without_usage(self, usage: Quantities) -> Iterator[None]:
        """Free amounts within a block."""
        self.remove(usage)
        try:
            yield
        finally:
            self.add(usage)


class AdmissionState:
    """ClusterQueues and cohorts by name, flavors by name, and the Workloads with quota.

    Raises InvalidQuantity and InvalidSelector for an object with one.
    ``topologies`` are those of flavors that have one, by flavor.
    """

    def __init__(
        self,
        cluster_queues: Iterable[ClusterQueue] = (),
        cohorts: Iterable[Cohort] = (),
        flavors: Iterable[ResourceFlavor] = (),
        checks: Iterable[AdmissionCheck] | None = None,
        topologies: Mapping[str, FlavorTopology] | None = None,
    ) -> None:
        checks = None if checks is None else list(checks)
        self.topologies = dict(topologies or {})
        self.flavors = {obj.metadata.name: obj for obj in flavors}
        self.cohorts: dict[str, CohortNode] = {}
        self.cluster_queues: dict[str, ClusterQueueNode] = {}
        self._active_checks = None if checks is None else {one.metadata.name: one.is_active for one in checks}
        declared = sorted(cohorts, key=lambda obj: obj.metadata.name)
        for cohort in declared:
            spec, name = cohort.spec, cohort.metadata.name
            self.cohorts[name] = CohortNode(name, quotas_of(spec.resource_groups), spec.fair_sharing.as_number())
        for cohort in declared:
            if cohort.parent_name:
                self._join(self.cohorts[cohort.metadata.name], cohort.parent_name)
        for obj in sorted(cluster_queues, key=lambda obj: obj.metadata.name):
            queue = self.cluster_queues[obj.metadata.name] = ClusterQueueNode(obj)
            queue.problem = self._problem(obj)
            names = [flavor.name for group in queue.groups for flavor in group.flavors]
            queue.topologies = {name: self.topologies[name] for name in names if name in self.topologies}
            provisioning = {one.metadata.name for one in checks or () if one.spec.controller_name == _PROVISIONING}
            for check in obj.checks:
                if check.name in provisioning:
                    queue.provisioned |= set(check.on_flavors or names)
            if obj.cohort_name:
                self._join(queue, obj.cohort_name)
        cyclic = {name for name, node in self.cohorts.items() if _is_in_cycle(node)}
        for queue in self.cluster_queues.values():
            if queue.parent is not None and queue.parent.name in cyclic:
                queue.problem = queue.problem or f"cohort {queue.parent.name} is its own ancestor"
                queue.parent = None
        for name in cyclic:
            self.cohorts[name].parent, self.cohorts[name].queues = None, []
            self.cohorts[name].cohorts = []
        for cohort_node in self.cohorts.values():
            if cohort_node.parent is None:
                cohort_node.accumulate()

    def _join(self, node: QuotaNode, name: str) -> None:
        cohort = self.cohorts.get(name)
        if cohort is None:
            cohort = self.cohorts[name] = CohortNode(name)
        node.parent = cohort
        if isinstance(node, CohortNode):
            cohort.cohorts.append(node)
        else:
            cohort.queues.append(node)

    def _problem(self, obj: ClusterQueue) -> str:
        if obj.spec.stop_policy not in ("", "None"):
            return f"is stopped (stopPolicy {obj.spec.stop_policy})"
        for group in obj.spec.resource_groups:
            for flavor in group.flavors:
                if flavor.name not in self.flavors:
                    return f"there is no ResourceFlavor {flavor.name}"
                topology = self.flavors[flavor.name].spec.topology_name
                if topology is not None and flavor.name not in self.topologies:
                    return f"there is no Topology {topology} of ResourceFlavor {flavor.name}"
        for check in obj.checks if self._active_checks is not None else ():
            assert self._active_checks is not None
            if check.name not in self._active_checks:
                return f"there is no AdmissionCheck {check.name}"
            if not self._active_checks[check.name]:
                return f"AdmissionCheck {check.name} is not active"
        return ""

    # -- Workloads with quota ------------------------------------------------------------------------------------------

    def add(self, info: WorkloadInfo) -> None:
        """Count the usage of a Workload with quota; nothing if its ClusterQueue does not exist."""
        queue = self.cluster_queues.get(info.cluster_queue)
        if queue is not None:
            queue.workloads[info.key] = info
            queue.add(info.usage())
            self.use_topology(info.topology_usage())

    def remove(self, info: WorkloadInfo) -> None:
        """Stop counting the usage of a Workload."""
        queue = self.cluster_queues.get(info.cluster_queue)
        if queue is not None and queue.workloads.pop(info.key, None) is not None:
            queue.remove(info.usage())
            self.use_topology(info.topology_usage(), -1)

    def use_topology(self, usage: TopologyUsage, sign: int = 1) -> None:
        """Use domains of nodes, or (-1) free them: of hosts in all topologies that know them."""
        for flavor, domains in usage.items():
            own = self.topologies.get(flavor)
            if own is None:
                continue
            for topology in self.topologies.values() if own.by_host else (own,):
                if topology is own or topology.by_host:
                    for domain in domains:
                        topology.use(domain, sign)

    def release(self, info: WorkloadInfo) -> None:
        """Remove a Workload for good, so that its quota is free."""
        self.remove(info)
        queue = self.cluster_queues[info.cluster_queue]
        root = root_of(queue)
        for other in root.subtree_queues() if isinstance(root, CohortNode) else (queue,):
            assert isinstance(other, ClusterQueueNode)
            other.generation += 1

    @contextmanager
    def without(self, infos: Iterable[WorkloadInfo]) -> Iterator[None]:
        """Do without some Workloads within a block."""
        removed = list(infos)
        for info in removed:
            self.remove(info)
        try:
            yield
        finally:
            for info in reversed(removed):
                self.add(info)

    @contextmanager
    def without_usage_of(self, infos: Iterable[WorkloadInfo]) -> Iterator[None]:
        """Do without the usage of some Workloads within a block; they stay in their ClusterQueues."""
        freed = [(self.cluster_queues[info.cluster_queue], info.usage(), info.topology_usage()) for info in infos]
        for queue, usage, domains in freed:
            queue.remove(usage)
            self.use_topology(domains, -1)
        try:
            yield
        finally:
            for queue, usage, domains in reversed(freed):
                queue.add(usage)
                self.use_topology(domains)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end of the block what it changes in usage; Workloads with quota stay as they are."""
        nodes = (*self.cohorts.values(), *self.cluster_queues.values())
        before = [(node, dict(node.usage)) for node in nodes]
        domains = [(topology, topology.copy_of_use()) for topology in self.topologies.values()]
        try:
            yield
        finally:
            for node, usage in before:
                node.usage = usage
            for topology, used in domains:
                topology.restore_use(used)


def _is_in_cycle(node: CohortNode) -> bool:
    seen = {node.name}
    parent = node.parent
    while parent is not None:
        if parent.name in seen:
            return True
        seen.add(parent.name)
        parent = parent.parent
    return False
