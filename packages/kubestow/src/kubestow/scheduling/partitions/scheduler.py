"""A scheduler that holds some partitions of a cluster, beside others that hold the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from kubestow import config
from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.configuration import PluginEntry
from kubestow.errors import ConfigurationError
from kubestow.framework.profile import Registry
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.decision.node_selection import WHOLE_CLUSTER, Scope
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.environment import Environment, Leadership
from kubestow.scheduling.events.handlers import EventHandlers, Key
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.partitions.held_partitions import HeldPartitions, is_on_offer, offered_node
from kubestow.scheduling.partitions.plugin import CHANGED, NAME, WEIGHT, Partitions
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler

_ENTRY = PluginEntry(NAME, WEIGHT)
_GANGS_OF_KUBERNETES = ("GangScheduling", "TopologyPlacementGenerator")


#: After a node has come into another partition, until its pods are looked for; in seconds.
_SECONDS_UNTIL_LOOK = 1.0


class PartitionedSchedulingCycle(SchedulingCycle):
    """Decides about an offered pod whether it fits on the node that it is offered for."""

    #: Declines the offer of a pod.
    decline: Callable[[PodInfo], None]

    async def decide(self, info: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        offered = offered_node(info)
        if not offered:
            return await super().decide(info, scope)
        decision = await super().decide(info, Scope([offered], preempts=False))
        if not isinstance(decision, Scheduled):
            self.decline(info)
        return decision


class PartitionedEventHandlers(EventHandlers):
    """Queues the pods that this scheduler tries; of the others it only knows that they exist."""

    partitions: HeldPartitions
    queue: SchedulingQueue
    #: Declines the offer of a pod.
    decline: Callable[[PodInfo], None]
    #: The pods that have been offered since offers were looked at last, by uid.
    offered: deque[str]
    #: Called when a node belongs to another partition than before, and pods that are tied to it do.
    membership_changed: Callable[[], None]

    def _put_node(self, node: Node) -> None:
        before = self.partitions.of_node(node.metadata.name)
        super()._put_node(node)
        if self.partitions.of_node(node.metadata.name) != before:
            self.membership_changed()

    def _deleted(self, resource: Resource, key: Key) -> None:
        before = self.partitions.of_node(key[1]) if resource == NODES else None
        super()._deleted(resource, key)
        if before is not None and self.partitions.of_node(key[1]) != before:
            self.membership_changed()

    def _put_pending_pod(self, old: PodInfo | None, info: PodInfo) -> None:
        uid = info.uid
        if self.partitions.may_attempt(info) or self._cluster.is_assumed(uid) or uid in self.queue.in_flight:
            super()._put_pending_pod(old, info)
            changed = old is None or old.metadata.resource_version != info.metadata.resource_version
            if changed and is_on_offer(info) and not self._cluster.is_assumed(uid):
                self.offer_received(info)
            return
        self.queue.delete(uid)
        self._update_nomination(old, info)

    def offer_received(self, info: PodInfo) -> None:
        """Have a queued pod that is on offer tried soon, or decline it if a plugin gates it here.

        It may wait for events since an earlier offer, of which the watch has left out the end.
        """
        self.queue.activate([info.uid])
        queued = self.queue.pods.get(info.uid)
        if queued is not None and queued.gated_by:
            self.decline(info)
        else:
            self.offered.append(info.uid)


class _SharedPorts:
    """Keeps a host port taken as long as a pod on the node has it.

    While a pod is offered for a node, the scheduler of the node may bind another one with the same port, and declines.
    Within one scheduler two pods never come to that; if users bind them, the port is free as soon as one of them goes,
    as for kube-scheduler (semantics 7.4).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Nothing: the ports have been taken."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Take those ports again that other pods on the node have."""
        if info.shape.host_ports:
            for other in self._nodes.pods[row].values():
                self._nodes.take_ports(row, other)


class PartitionedScheduler(Scheduler):
    """Schedules the pods of the partitions that it holds, and binds pods to the nodes of these only.

    The plugin :class:`Partitions` is added to every profile. Raises ConfigurationError for extenders that bind pods,
    which would bind them to any node, and for gang plugins of other projects. Only Kubernetes' own pod groups count:
    the others' are named by labels and annotations, on which the partition of a pod does not depend.
    """

    _scheduling_cycles = PartitionedSchedulingCycle
    _event_handlers = PartitionedEventHandlers

    def __init__(
        self,
        configuration: config.KubeSchedulerConfiguration,
        *,
        partitions: HeldPartitions,
        registry: Registry,
        environment: Environment,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        gates: config.FeatureGates | None = None,
        extenders: Sequence[Extender] = (),
        pod_max_in_unschedulable_pods: float = 300.0,
        leadership: Leadership | None = None,
    ) -> None:
        for index, extender in enumerate(extenders):
            if extender.settings.bind_verb:
                problem = "an extender that binds pods does not respect the partitions of nodes"
                raise ConfigurationError("partitions", [(f"extenders[{index}].bindVerb", problem)])
        self.partitions = partitions

        class PartitionsOfScheduler(Partitions):
            held = partitions

        super().__init__(
            with_plugin(configuration),
            registry={**registry, NAME: PartitionsOfScheduler},
            environment=environment,
            gates=gates,
            extenders=extenders,
            leadership=leadership,
            pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
        )
        for name, profile in self.profiles.items():
            source = profile.runtime.plugins.gang_source
            if source is not None and source.name not in _GANGS_OF_KUBERNETES:
                problem = f"the gangs of plugin {source.name} do not respect partitions"
                raise ConfigurationError("partitions", [(f'profile "{name}"', problem)])
        PartitionsOfScheduler.pods = self.pods
        plugins = [plugin for plugin in self._first_profile_plugins() if isinstance(plugin, Partitions)]
        assert isinstance(self._scheduling_cycle, PartitionedSchedulingCycle)
        self._scheduling_cycle.decline = plugins[0].decline
        assert isinstance(self.handlers, PartitionedEventHandlers)
        self.handlers.decline = plugins[0].decline
        self.handlers.partitions, self.handlers.queue = partitions, self.queue
        self._offered = self.handlers.offered = deque()
        self.handlers.membership_changed = self._membership_changed
        self._receive_offer = self.handlers.offer_received
        self._shared_ports = _SharedPorts(self.cluster)
        self.cluster.listen_to_placements(self._shared_ports)
        self._looks_soon = False
        partitions.attach(
            self.cluster,
            environment.clock,
            pods=self.pods,
            attempted=lambda: None if self._attempted is None else self._attempted.info,
            changed=self._partitions_changed,
            hold_back=self._hold_back,
            observer=environment.observer,
        )

    def _pending_pods(self) -> Iterator[PodInfo]:
        """The pods without a node of the profiles of this scheduler, of all partitions."""
        for pod in self.pods.pods():
            if not pod.is_assigned and pod.spec.scheduler_name in self.profiles:
                yield pod

    def _partitions_changed(self) -> None:
        """Queue the pods of partitions that have been taken over, and drop those of others."""
        for queued in list(self.queue.pods.values()):
            if not self.partitions.may_attempt(queued.info):
                self.queue.delete(queued.info.uid)
        for pod in self._pending_pods():
            if self.partitions.may_attempt(pod) and not self.cluster.is_assumed(pod.uid):
                self.queue.add(pod)
                if is_on_offer(pod):
                    self._receive_offer(pod)
        self._handle.report_change(CHANGED)

    def _membership_changed(self) -> None:
        """Look for the pods that this scheduler tries now, once for all nodes that change within a second."""
        if not self._looks_soon:
            self._looks_soon = True
            self.environment.concurrency.call_later(_SECONDS_UNTIL_LOOK, self._look_again)

    def _look_again(self) -> None:
        self._looks_soon = False
        self._partitions_changed()

    def _first_profile_plugins(self) -> Sequence[Any]:
        return next(iter(self.profiles.values())).plugins

    async def _schedule_one(self, queued: QueuedPod) -> None:
        """One cycle, unless the pod has become another scheduler's while it was in flight, and was requeued since.

        Pods on offer of no lower priority come first: what they were offered may be gone if they wait.
        """
        while self._offered:
            current = self.pods.get(self._offered.popleft())
            if current is not None and current.uid != queued.info.uid and current.priority >= queued.info.priority:
                offered = self.queue.pop_pod(current.uid)
                if offered is not None:
                    await self._schedule_if_own(offered)
        await self._schedule_if_own(queued)

    async def _schedule_if_own(self, queued: QueuedPod) -> None:
        if self.partitions.may_attempt(queued.info):
            await super()._schedule_one(queued)
        else:
            self.queue.drop_popped(queued)


def with_plugin(configuration: config.KubeSchedulerConfiguration) -> config.KubeSchedulerConfiguration:
    """The configuration with the plugin Partitions in all profiles: the first one at Bind, elsewhere the last."""
    profiles = []
    for profile in configuration.profiles:
        plugins = profile.plugins
        multi_point = structs.replace(plugins.multi_point, enabled=(*plugins.multi_point.enabled, _ENTRY))
        changed = {
            field: structs.replace(point, enabled=(*point.enabled, _ENTRY))
            for field in ("filter", "score", "reserve")
            if "*" in (point := getattr(plugins, field)).disabled_names  # multiPoint does not count there
        }
        bind = structs.replace(plugins.bind, enabled=(_ENTRY, *plugins.bind.enabled))
        plugins = structs.replace(plugins, multi_point=multi_point, bind=bind, **changed)
        profiles.append(structs.replace(profile, plugins=plugins))
    return structs.replace(configuration, profiles=tuple(profiles))
