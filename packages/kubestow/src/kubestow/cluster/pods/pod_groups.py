"""The members of pod groups, whether or not they are placed.

A pod names its group by a field, a label or an annotation, depending on the API group of its PodGroup
(:mod:`kubestow.api.scheduling`). PodGroup objects are not kept here; pods are often created before their group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kubestow.cluster.pods.shapes import PodInfo

_COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
_VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"


class PodGroupAPI(StrEnum):
    """The API groups that define a PodGroup."""

    KUBERNETES = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"
    VOLCANO = "scheduling.volcano.sh"


class PodGroupName(NamedTuple):
    """The identity of a pod group."""

    api: PodGroupAPI
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def native_name(name: Hashable) -> PodGroupName | None:
    """A gang's name if it is a PodGroup of ``scheduling.k8s.io``, else None."""
    return name if isinstance(name, PodGroupName) and name.api is PodGroupAPI.KUBERNETES else None


def memberships(pod: PodInfo) -> Iterator[PodGroupName]:
    """The groups that a pod names, at most one of each API."""
    metadata, group = pod.metadata, pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        yield PodGroupName(PodGroupAPI.KUBERNETES, metadata.namespace, group.pod_group_name)
    if name := metadata.labels.get(_COSCHEDULING_LABEL):
        yield PodGroupName(PodGroupAPI.COSCHEDULING, metadata.namespace, name)
    if name := metadata.annotations.get(_VOLCANO_ANNOTATION):
        yield PodGroupName(PodGroupAPI.VOLCANO, metadata.namespace, name)


@dataclass(slots=True)
class Members:
    """The pods of one group by uid, in the order in which they were added.

    ``ready`` are those that are neither terminating nor gated.
    """

    _on_nodes: KeysView[str]
    pods: dict[str, PodInfo] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)

    @property
    def placed(self) -> frozenset[str]:
        """The uids of the ready members that are on nodes, assumed ones included."""
        return frozenset(self.ready.keys() & self._on_nodes)

    def put(self, info: PodInfo) -> bool:
        """Add or replace a member; whether it has become ready."""
        self.pods[info.uid] = info
        if info.terminating or info.spec.scheduling_gates:
            self.ready.pop(info.uid, None)
            return False
        becomes_ready = info.uid not in self.ready
        self.ready[info.uid] = None
        return becomes_ready

    def remove(self, uid: str) -> None:
        """Remove a member, if it is one."""
        self.pods.pop(uid, None)
        self.ready.pop(uid, None)


class PodGroups:
    """The groups that have members. ``on_nodes`` is a live view of the uids of all placed pods."""

    def __init__(self, on_nodes: KeysView[str]) -> None:
        self._on_nodes = on_nodes
        self._members: dict[PodGroupName, Members] = {}
        self._names: dict[str, tuple[PodGroupName, ...]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[PodGroupName]:
        return iter(self._members)

    def members(self, name: PodGroupName) -> Members:
        """The members of a group; empty for a group without any."""
        return self._members.get(name) or Members(self._on_nodes)

    def put(self, info: PodInfo) -> bool:
        """Add or replace a pod; whether it has become a ready member of a group."""
        names = tuple(memberships(info))
        for name in self._names.get(info.uid, ()):
            if name not in names:
                self._leave(name, info.uid)
        if not names:
            self._names.pop(info.uid, None)
            return False
        self._names[info.uid] = names
        became_ready = [self._members.setdefault(name, Members(self._on_nodes)).put(info) for name in names]
        return any(became_ready)

    def remove(self, uid: str) -> None:
        """Remove a pod from its groups."""
        for name in self._names.pop(uid, ()):
            self._leave(name, uid)

    def _leave(self, name: PodGroupName, uid: str) -> None:
        members = self._members[name]
        members.remove(uid)
        if not members.pods:
            del self._members[name]
