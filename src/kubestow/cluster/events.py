"""What can happen in a cluster, in the words that plugins, queue and caches share.

A :class:`ClusterEvent` is a resource and a set of actions (semantics 6.9). Plugins declare the events that can change
their mind; the queue asks :meth:`ClusterEvent.matches` to decide whom to wake, and the journal of the cluster uses
:attr:`ClusterEvent.bits` to tell which remembered answers have gone stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from functools import cached_property

__all__ = ["POD_BITS", "Action", "ClusterEvent", "EventResource"]


class EventResource(StrEnum):
    """The kinds of objects whose changes can matter to a pending pod."""

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    #: Never wake a pod in kube-scheduler; here they only tell remembered answers that they are stale.
    NAMESPACE = "Namespace"
    NOMINATION = "Nomination"  # a node promised to a pending pod, or no longer
    WORKLOAD = "Workload"  # services, replication controllers, replica sets, stateful sets
    AFFINITY_TERM = "AffinityTerm"  # a term of pod affinity or anti-affinity that placed pods carry, new or gone
    #: Any kind that plugins bring along: its events have a name of their own, remembered answers share this one.
    CUSTOM = "custom"
    WILDCARD = "*"


class Action(IntFlag):
    """What was done, as bits; their values are the reference's and their order is meaningful in ``matches``."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_TOLERATION = 1024
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
    UPDATE = 8188
    ALL = 8191
    #: Our own: node images, pod requests growing, pods starting. They change answers but never wake a pod.
    UPDATE_NODE_IMAGES = 8192
    UPDATE_POD_SCALE_UP = 16384
    UPDATE_POD_START_TIME = 32768


_LABELS = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}

_ACTION_BITS = 16
_PODS = frozenset({EventResource.POD, EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD})
#: Pods and nodes have a bit per action; every other resource has one bit for anything that happens to it.
_SINGLE_BITS: dict[str, int] = {
    resource: 1 << (2 * _ACTION_BITS + number)
    for number, resource in enumerate(
        r for r in EventResource if r not in _PODS and r not in (EventResource.NODE, EventResource.WILDCARD)
    )
}
#: The journal bits of everything that can happen to a pod.
POD_BITS = (1 << _ACTION_BITS) - 1
_EVERY_BIT = (1 << (2 * _ACTION_BITS + len(_SINGLE_BITS))) - 1


@dataclass(frozen=True)
class ClusterEvent:
    """Something that happened (one action), or that somebody wants to hear of (any of several actions).

    ``resource`` is an :class:`EventResource`, or the name of a resource that a plugin brings along.
    """

    resource: str
    action: Action

    @property
    def is_wildcard(self) -> bool:
        """Whether this stands for every event there is."""
        return self.resource is EventResource.WILDCARD and self.action == Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether someone registered for this event wants to hear of ``incoming`` (semantics 6.9).

        QUIRK: actions are also compared as integers, so a generic ``UPDATE`` reaches only registrations for all
        updates.
        """
        if self.is_wildcard:
            return True
        same = self.resource in (EventResource.WILDCARD, incoming.resource) or (
            self.resource is EventResource.POD and incoming.resource in _PODS
        )
        return same and bool(self.action & incoming.action) and int(incoming.action) <= int(self.action)

    @cached_property
    def label(self) -> str:
        """The event's name in metrics and logs, such as ``AssignedPodAdd``."""
        return self.resource + _LABELS.get(self.action, self.action.name or "")

    @cached_property
    def bits(self) -> int:
        """The event as a set of journal bits (fewer than 64)."""
        if self.resource is EventResource.WILDCARD:
            return _EVERY_BIT
        if self.resource in _PODS:
            return int(self.action)
        if self.resource is EventResource.NODE:
            return int(self.action) << _ACTION_BITS
        return _SINGLE_BITS.get(self.resource, _SINGLE_BITS[EventResource.CUSTOM])
