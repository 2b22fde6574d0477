"""SySched places pods with others that use the same system calls, so that each is exposed to few that it does not use.

What a node's kernel offers is all that its pods may call. The score of a node is the number of system calls, added up
over the new pod and the pods there, that they would be exposed to without using them; the fewest are best.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Handle, ScorePlugin, normalized
from kubestow_contrib.sysched.pod_sets import PodSets
from kubestow_contrib.sysched.profiles import References, SeccompProfile, allowed

__all__ = ["SySched", "SySchedArgs"]

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
    reads_requests = False
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, requeues=False),
        on(EventResource.NODE, Action.ADD, requeues=False),
        on(
            SeccompProfile,
            Action.ADD | Action.UPDATE | Action.DELETE,
            invalidates=Invalidation.ALL,
            requeues=False,
        ),
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
