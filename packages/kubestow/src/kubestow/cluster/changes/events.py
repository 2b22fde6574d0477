"""Cluster events: a resource and the actions on it (semantics 6.9).

Plugins register for the events that can change their results. The scheduling queue decides by
:meth:`ClusterEvent.matches` which pods an event requeues, and the journal by :attr:`ClusterEvent.bits` which cached
results it invalidates.

Calls of those that listen to the cluster: plugins, and the state that is derived from several kinds of objects.

A plugin's listener is called from the middle of a change, by the watch or by a decision. One that fails must neither
end the scheduler nor leave the change half made, so its exception is logged, and the others are called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from functools import cached_property

from kubestow.log_fields import fields


class EventResource(StrEnum):
    """The resources whose changes can matter to pending pods."""

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
    #: The next ones requeue no pod, neither here nor in kube-scheduler; they only invalidate cached results.
    NAMESPACE = "Namespace"
    NOMINATION = "Nomination"  # a pod that is nominated for a node, or no longer
    WORKLOAD = "Workload"  # services, replication controllers, replica sets, stateful sets
    AFFINITY_TERM = "AffinityTerm"  # a pod (anti-)affinity term that placed pods begin or cease to carry
    #: The custom resources of plugins: their events have names of their own, their journal bit is this one's.
    CUSTOM = "custom"
    WILDCARD = "*"


class Action(IntFlag):
    """Actions as bits. Their values are kube-scheduler's; ``matches`` compares them as numbers, too."""

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
    #: Not in kube-scheduler: these invalidate results but requeue no pod.
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
#: Pods and nodes have a bit per action; every other resource has one bit for all actions.
_SINGLE_BITS: dict[str, int] = {
    resource: 1 << (2 * _ACTION_BITS + number)
    for number, resource in enumerate(
        r for r in EventResource if r not in _PODS and r not in (EventResource.NODE, EventResource.WILDCARD)
    )
}
#: The journal bits of all actions on pods.
POD_BITS = (1 << _ACTION_BITS) - 1
_EVERY_BIT = (1 << (2 * _ACTION_BITS + len(_SINGLE_BITS))) - 1


@dataclass(frozen=True)
class ClusterEvent:
    """An event that occurred (with one action) or is registered for (with any of several).

    ``resource`` is an :class:`EventResource` or the name of a plugin's custom resource.
    """

    resource: str
    action: Action

    @property
    def is_wildcard(self) -> bool:
        """Whether this is a registration for all events."""
        return self.resource is EventResource.WILDCARD and self.action == Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether a registration for this event covers the ``incoming`` one (semantics 6.9).

        QUIRK: actions are also compared as integers, so a generic ``UPDATE`` matches only registrations for all
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


_log = logging.getLogger(__name__)


def notify(listener: Callable[..., object], *arguments: object) -> None:
    """Call a listener; whatever it raises is logged, ``sys.exit()`` and a cancelled future included."""
    try:
        listener(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        name = _name(listener)
        _log.exception(
            "%s failed; what it keeps about the cluster may be wrong from now on", name, extra=fields(listener=name)
        )


def _name(listener: Callable[..., object]) -> str:
    return f"{listener.__module__}.{getattr(listener, '__qualname__', type(listener).__qualname__)}"
