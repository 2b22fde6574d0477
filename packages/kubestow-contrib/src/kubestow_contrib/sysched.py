"""SySched of scheduler-plugins: pods that use the same system calls share nodes.

SeccompProfile objects name the system calls that pods may use; :class:`SySched` prefers nodes whose pods use the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import SecurityContext
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Handle, ScorePlugin, normalized

References = tuple[tuple[str, str], ...]
"""Namespaces and names of the profiles of a pod, sorted."""

_LOCALHOST = "Localhost"
_ALLOWING = ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")


class Syscalls(APIObject, frozen=True):
    """``spec.syscalls[]``: what happens on some system calls."""

    action: str = ""
    names: list[str] = []


class SeccompProfileSpec(APIObject, frozen=True):
    """``spec``."""

    syscalls: list[Syscalls] = []


class SeccompProfile(CustomObject, frozen=True):
    """A profile of the operator."""

    resource: ClassVar[str] = "seccompprofiles.v1beta1.security-profiles-operator.x-k8s.io"
    spec: SeccompProfileSpec = SeccompProfileSpec()


def references(shape: Shape) -> References:
    """The profiles that the security contexts of a pod and its containers name; init containers do not count."""
    contexts = (shape.spec.security_context, *(container.security_context for container in shape.spec.containers))
    found = {reference for context in contexts if (reference := _reference(context)) is not None}
    return tuple(sorted(found))


def allowed(catalog: Catalog[SeccompProfile], profiles: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The system calls that any of some profiles allows or logs; none for a profile that does not exist.

    A profile without a namespace is found by its name alone, as newer versions of the operator have it.
    """
    found: set[str] = set()
    for namespace, name in profiles:
        profile = catalog.get(namespace, name) or catalog.get("", name)
        if profile is not None:
            for syscalls in profile.spec.syscalls:
                if syscalls.action in _ALLOWING:
                    found.update(syscalls.names)
    return frozenset(found)


def _reference(context: SecurityContext | None) -> tuple[str, str] | None:
    """The profile at a path such as ``operator/<namespace>/<name>.json``."""
    profile = None if context is None else context.seccomp_profile
    if profile is None or profile.type != _LOCALHOST:
        return None
    directory, _, file = profile.localhost_profile.rpartition("/")
    name = file.rpartition(".")[0] or file
    namespace = directory.rpartition("/")[2]
    return (namespace, name) if namespace and name else None


class PodSets:
    """Pods per node by their profiles. A column is dropped when no pod has its profiles any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The number of pods per row of the node table, int64, by their profiles.
        self.columns: dict[References, Column] = {}
        self._pods: Counter[References] = Counter()
        self._references: WeakKeyDictionary[Shape, References] = WeakKeyDictionary()
        cluster.listen_to_placements(self)

    def references(self, shape: Shape) -> References:
        """The profiles of a pod."""
        found = self._references.get(shape)
        if found is None:
            found = self._references[shape] = references(shape)
        return found

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod."""
        found = self.references(info.shape)
        if found not in self.columns:
            self.columns[found] = self._cluster.nodes.columns.new(np.int64)
        self.columns[found].add(row, +1)
        self._pods[found] += 1

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod any more."""
        found = self.references(info.shape)
        self.columns[found].add(row, -1)
        self._pods[found] -= 1
        if not self._pods[found]:
            del self._pods[found], self.columns[found]


Int64s = NDArray[np.int64]
T = TypeVar("T", int, NDArray[np.int64])


class SySchedArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The SeccompProfile of pods without profile, which allows all system calls."""

    default_profile_namespace: str = "default"
    default_profile_name: str = "all-syscalls"


class SySched(ScorePlugin):
    """Scores the system calls that pods are exposed to without using them."""

    name = "SySched"
    Args = SySchedArgs
    label_keys = ()
    reads_requests = reads_volumes = False
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, requeues=False),
        on(EventResource.NODE, Action.ADD, requeues=False),
        on(SeccompProfile, Action.ADD | Action.UPDATE | Action.DELETE, invalidates=Invalidation.ALL, requeues=False),
    )

    def __init__(self, args: SySchedArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._default = (args.default_profile_namespace, args.default_profile_name)
        self._catalog = handle.cluster.catalog(SeccompProfile)
        self._pods = PodSets(handle.cluster)
        #: The system calls that profiles allow, and the version of the catalog that they were read from.
        self._allowed: dict[References, frozenset[str]] = {}
        self._version = -1

    def signature(self, pod: PodInfo) -> Hashable:
        """The profiles of the pod."""
        return self._pods.references(pod.shape)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Int64s:
        """The system calls that pods would be exposed to; 0 everywhere for a pod without any, and on empty nodes."""
        own = self._of(self._pods.references(pod.shape))
        sets = [(self._of(found), column.readonly[nodes.rows]) for found, column in self._pods.columns.items()]
        if not own or not sets:
            return np.zeros(len(nodes), np.int64)
        names = sorted(set().union(*(calls for calls, _ in sets)))
        members = np.array([[name in calls for name in names] for calls, _ in sets], np.float32)
        counts = np.array([column for _, column in sets], np.int64)
        offered = (counts > 0).astype(np.float32).T @ members > 0  # a row per node, a column per system call
        number = offered.sum(axis=1)
        shared = offered[:, [name in own for name in names]].sum(axis=1)
        pods, used = counts.sum(axis=0), np.array([len(calls) for calls, _ in sets], np.int64) @ counts
        return _exposed(number, shared, len(own), pods, used)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        own = self._of(self._pods.references(pod.shape))
        offered: set[str] = set()
        pods = used = 0
        if own:
            for found, column in self._pods.columns.items():
                if count := column.values.item(node.row):
                    calls = self._of(found)
                    offered |= calls
                    pods, used = pods + count, used + count * len(calls)
        return _exposed(len(offered), len(offered & own), len(own), pods, used)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, nodes: Nodes) -> Int64s:
        """100 for no exposure, 0 for the largest."""
        return normalized(scores, reverse=True)

    def _of(self, found: References) -> frozenset[str]:
        """The system calls of pods with these profiles, or else those of the default profile."""
        if self._version != self._catalog.version or len(self._allowed) > 2 * len(self._pods.columns) + 1:
            self._version, self._allowed = self._catalog.version, {}
        calls = self._allowed.get(found)
        if calls is None:
            calls = allowed(self._catalog, found) or allowed(self._catalog, (self._default,))
            self._allowed[found] = calls
        return calls


def _exposed(offered: T, shared: T, own: int, pods: T, used: T) -> T:
    """The number of system calls, added up over pods, that are offered to a pod and not used by it.

    ``offered`` is their number before the new pod, ``shared`` of which it uses, ``own`` the number that it uses.
    ``used`` is the sum over the ``pods`` on the node, which use no others than are offered.
    """
    return offered - shared + pods * (offered + own - shared) - used
