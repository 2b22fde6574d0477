"""The members of pod groups, whether or not they are placed.

A pod names its group by a field, a label or an annotation, depending on the API that defines the group: Kubernetes' own
(:mod:`kubestow.api.scheduling`), or one of another project. PodGroup objects are not kept here; pods are often created
before their group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubestow.api.core import Pod
from kubestow.api.scheduling import PodGroup, Workload
from kubestow.cluster.changes.events import notify
from kubestow.cluster.pods.shapes import PodInfo


@dataclass(frozen=True, slots=True)
class PodGroupAPI:
    """An API that defines pod groups: how a pod names its group, and what a group requires."""

    #: The API group, as ``scheduling.k8s.io``.
    name: str
    #: The struct of its groups, which have names and namespaces. That of another project is a
    #: :class:`kubestow.api.custom.CustomObject`.
    kind: type[Any]
    #: The name of the group that a pod is in, in the pod's namespace; empty or None for a pod in no group of this API.
    group_of: Callable[[Pod], str | None]
    #: How many pods a group, given as its struct, needs at the same time, and how many seconds those with nodes wait
    #: for each other before they are bound; None or 0 for the default.
    gang_policy: Callable[[Any], tuple[int, float | None]]
    #: Whether a pod joins its group also if it is terminating or gated.
    counts_gated_pods: bool = False
    #: How many pods of each role a group, given as its struct, needs, and the role that a pod names ("" for none).
    min_by_role: Callable[[Any], Mapping[str, int]] = lambda group: {}
    role_of: Callable[[Pod], str] = lambda pod: ""


def _kubernetes_group_of(pod: Pod) -> str | None:
    group = pod.spec.scheduling_group
    return None if group is None else group.pod_group_name


def _kubernetes_gang_policy(group: PodGroup) -> tuple[int, None]:
    gang = group.spec.scheduling_policy.gang
    return (0 if gang is None else gang.min_count), None


def _workload_group_of(pod: Pod) -> str | None:
    reference = pod.spec.workload_ref
    if reference is None:
        return None
    return f"{reference.name}/{reference.pod_group}/{reference.pod_group_replica_key}"


KUBERNETES = PodGroupAPI("scheduling.k8s.io", PodGroup, _kubernetes_group_of, _kubernetes_gang_policy)

WORKLOADS = PodGroupAPI(
    "workloads.scheduling.k8s.io", Workload, _workload_group_of, lambda workload: (0, None), counts_gated_pods=True
)
"""Kubernetes' own groups in 1.35, ``workload/group/replica``; the Workload has the policy of each group."""


class PodGroupName(NamedTuple):
    """The identity of a pod group. ``api`` is the name of its :class:`PodGroupAPI`."""

    api: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


COMPOSITE = "scheduling.k8s.io/composite"
"""In place of the API in the name of a composite group."""


def native_name(name: Hashable) -> PodGroupName | None:
    """A gang's name if it is a PodGroup of ``scheduling.k8s.io``, else None."""
    return name if isinstance(name, PodGroupName) and name.api == KUBERNETES.name else None


@dataclass(slots=True)
class Members:
    """The pods of one group by uid, in the order in which they were added.

    ``ready`` are those that are neither terminating nor gated; ``gated`` have scheduling gates.
    """

    _on_nodes: KeysView[str]
    pods: dict[str, PodInfo] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)

    @property
    def placed(self) -> frozenset[str]:
        """The uids of the ready members that are on nodes, assumed ones included."""
        return frozenset(self.ready.keys() & self._on_nodes)

    @property
    def has_placed(self) -> bool:
        """Whether a member is on a node, an assumed one included; cheaper than to ask which ones."""
        return not self.pods.keys().isdisjoint(self._on_nodes)

    @property
    def on_nodes(self) -> frozenset[str]:
        """The uids of all members that are on nodes, assumed ones included."""
        return frozenset(self.pods.keys() & self._on_nodes)

    def put(self, info: PodInfo) -> bool:
        """Add or replace a member; whether it has become ready."""
        self.pods[info.uid] = info
        self.gated.discard(info.uid)
        if info.spec.scheduling_gates and not info.terminating:
            self.gated.add(info.uid)
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
        self.gated.discard(uid)


class PodGroups:
    """The groups that have members.

    ``on_nodes`` is a live view of the uids of all placed pods. ``apis`` are those of other projects, ``own`` is that of
    Kubernetes.
    """

    def __init__(
        self, on_nodes: KeysView[str], apis: Iterable[PodGroupAPI] = (), *, own: PodGroupAPI = KUBERNETES
    ) -> None:
        #: The APIs whose groups count, Kubernetes' own first.
        self.apis = (own, *apis)
        self._with_gated_pods = {api.name for api in self.apis if api.counts_gated_pods}
        self._on_nodes = on_nodes
        self._members: dict[PodGroupName, Members] = {}
        self._names: dict[str, tuple[PodGroupName, ...]] = {}
        self._subscribers: list[Callable[[PodGroupName], None]] = []

    def subscribe(self, handler: Callable[[PodGroupName], None]) -> None:
        """Call a handler with the name of a group after every change of its members."""
        self._subscribers.append(handler)

    def _changed(self, name: PodGroupName) -> None:
        for handler in self._subscribers:
            notify(handler, name)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[PodGroupName]:
        return iter(self._members)

    def memberships(self, info: PodInfo) -> Iterator[PodGroupName]:
        """The groups that a pod names, at most one of each API."""
        pod = info.pod
        for api in self.apis:
            if name := api.group_of(pod):
                yield PodGroupName(api.name, info.namespace, name)

    def members(self, name: PodGroupName) -> Members:
        """The members of a group; empty for a group without any."""
        return self._members.get(name) or Members(self._on_nodes)

    def members_of_all(self, names: Iterable[PodGroupName]) -> Members:
        """The members of several groups together, as they are now."""
        joined = Members(self._on_nodes)
        for members in map(self.members, names):
            joined.pods |= members.pods
            joined.ready |= members.ready
            joined.gated |= members.gated
        return joined

    def put(self, info: PodInfo) -> bool:
        """Add or replace a pod; whether it has become a ready member of a group."""
        pod = info.pod
        for api in self.apis:
            if api.group_of(pod):
                break
        else:
            self.remove(info.uid)
            return False
        names = tuple(self.memberships(info))
        for name in self._names.get(info.uid, ()):
            if name not in names:
                self._leave(name, info.uid)
        self._names[info.uid] = names
        has_joined = [self._join(name, info) for name in names]
        return any(has_joined)

    def _join(self, name: PodGroupName, info: PodInfo) -> bool:
        members = self._members.setdefault(name, Members(self._on_nodes))
        is_new = info.uid not in members.pods
        becomes_ready = members.put(info)
        self._changed(name)
        return becomes_ready or (is_new and name.api in self._with_gated_pods)

    def remove(self, uid: str) -> None:
        """Remove a pod from its groups."""
        for name in self._names.pop(uid, ()):
            self._leave(name, uid)

    def _leave(self, name: PodGroupName, uid: str) -> None:
        members = self._members[name]
        members.remove(uid)
        if not members.pods:
            del self._members[name]
        self._changed(name)
