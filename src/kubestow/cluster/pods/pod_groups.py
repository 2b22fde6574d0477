"""The members of pod groups: which pods say that they belong to a group, whether or not they have a node.

A pod names its group by a field, a label or an annotation, depending on the API that the group is of
(:mod:`kubestow.api.scheduling`). What a group asks for is no business of this module, nor whether it exists: members
often come before their group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["Members", "PodGroupAPI", "PodGroupName", "PodGroups", "memberships", "native_name"]

_COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
_VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"


class PodGroupAPI(StrEnum):
    """The API groups that have a PodGroup."""

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
    """A gang's name, if it is that of one of Kubernetes' own pod groups."""
    return name if isinstance(name, PodGroupName) and name.api is PodGroupAPI.KUBERNETES else None


def memberships(pod: PodInfo) -> Iterator[PodGroupName]:
    """The groups that a pod says it belongs to, at most one of each API."""
    metadata, group = pod.metadata, pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        yield PodGroupName(PodGroupAPI.KUBERNETES, metadata.namespace, group.pod_group_name)
    if name := metadata.labels.get(_COSCHEDULING_LABEL):
        yield PodGroupName(PodGroupAPI.COSCHEDULING, metadata.namespace, name)
    if name := metadata.annotations.get(_VOLCANO_ANNOTATION):
        yield PodGroupName(PodGroupAPI.VOLCANO, metadata.namespace, name)


@dataclass(slots=True)
class Members:
    """The pods of one group by uid, in the order in which they became known.

    ``ready`` are those that could run, or do: neither on their way out nor held by scheduling gates.
    """

    _on_nodes: KeysView[str]
    pods: dict[str, PodInfo] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)

    @property
    def placed(self) -> frozenset[str]:
        """The uids of the ready members that have a node, if only by assumption."""
        return frozenset(self.ready.keys() & self._on_nodes)

    def put(self, info: PodInfo) -> bool:
        """A member is there; whether it is ready and was not before."""
        self.pods[info.uid] = info
        if info.terminating or info.spec.scheduling_gates:
            self.ready.pop(info.uid, None)
            return False
        more = info.uid not in self.ready
        self.ready[info.uid] = None
        return more

    def remove(self, uid: str) -> None:
        """A member is gone."""
        self.pods.pop(uid, None)
        self.ready.pop(uid, None)


class PodGroups:
    """All groups that have members. ``on_nodes`` are the uids of all placed pods, as they are at any time."""

    def __init__(self, on_nodes: KeysView[str]) -> None:
        self._on_nodes = on_nodes
        self._members: dict[PodGroupName, Members] = {}
        self._names: dict[str, tuple[PodGroupName, ...]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[PodGroupName]:
        return iter(self._members)

    def members(self, name: PodGroupName) -> Members:
        """The members of a group; none of a group that nobody belongs to."""
        return self._members.get(name) or Members(self._on_nodes)

    def put(self, info: PodInfo) -> bool:
        """A pod is there, new or changed; whether some group has one ready member more."""
        names = tuple(memberships(info))
        for name in self._names.get(info.uid, ()):
            if name not in names:
                self._leave(name, info.uid)
        if not names:
            self._names.pop(info.uid, None)
            return False
        self._names[info.uid] = names
        joined = [self._members.setdefault(name, Members(self._on_nodes)).put(info) for name in names]
        return any(joined)

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        for name in self._names.pop(uid, ()):
            self._leave(name, uid)

    def _leave(self, name: PodGroupName, uid: str) -> None:
        members = self._members[name]
        members.remove(uid)
        if not members.pods:
            del self._members[name]
