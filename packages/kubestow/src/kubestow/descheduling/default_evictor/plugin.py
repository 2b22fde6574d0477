"""The DefaultEvictor plugin, which every profile has as a filter and a pre-eviction filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

import numpy as np

from kubestow.api.selector_text import parse_selector
from kubestow.api.selectors import Selector, compile_selector
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.default_evictor import args as arguments
from kubestow.descheduling.default_evictor.args import SYSTEM_CRITICAL_PRIORITY, DefaultEvictorArgs
from kubestow.descheduling.eviction_order import PREFER_NO_EVICTION
from kubestow.descheduling.interface import FilterPlugin, PreEvictionFilterPlugin, Problem
from kubestow.descheduling.node_fit import Mask, NodeFit
from kubestow.rules.disruption import BudgetIndex

__all__ = ["DefaultEvictor"]

_EVICT = "descheduler.alpha.kubernetes.io/evict"
_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"
#: What a protection says about the pods of a shape, or about one pod: whether it may be evicted.
_ShapeRule = Callable[[Shape], bool]
_PodRule = Callable[[AssignedPod, ClusterState], bool]


class DefaultEvictor(FilterPlugin, PreEvictionFilterPlugin):
    """Protects pods. An annotation lets a pod pass the filter, but not node fit and the selection of namespaces."""

    name = "DefaultEvictor"
    Args = DefaultEvictorArgs

    @classmethod
    def validate(cls, args: DefaultEvictorArgs) -> Iterable[Problem]:
        return arguments.problems(args)

    def __init__(self, args: DefaultEvictorArgs) -> None:
        """The threshold in ``args`` has a value; see :func:`kubestow.descheduling.policy.with_priority_thresholds`."""
        super().__init__(args)
        self._protections = arguments.protections(args)
        self._shape_rules = list(self._rules_of_shapes(args))
        self._pod_rules = list(self._rules_of_pods(args))
        namespaces = args.namespace_label_selector
        self._namespaces = None if namespaces is None else compile_selector(namespaces)
        self._nodes: Selector = parse_selector(args.node_selector)
        self.loop_ended()

    def loop_ended(self) -> None:
        self._node_fit: _FittingNodes | None = None
        self._budgets: BudgetIndex | None = None
        #: What the protections say about the pods of a shape.
        self._accepted: dict[Shape, bool] = {}

    # -- Filter --------------------------------------------------------------------------------------------------

    def filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        annotations = pod.annotations
        if annotations:
            if _EVICT in annotations:
                return True
            if self.args.no_eviction_policy == arguments.MANDATORY and PREFER_NO_EVICTION in annotations:
                return False
            if _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api":
                return False
        if pod.terminating:
            return False
        if not self._accepts(pod.shape):
            return False
        return all(rule(pod, cluster) for rule in self._pod_rules)

    def _accepts(self, shape: Shape) -> bool:
        accepted = self._accepted.get(shape)
        if accepted is None:
            accepted = self._accepted[shape] = all(rule(shape) for rule in self._shape_rules)
        return accepted

    def _rules_of_shapes(self, args: DefaultEvictorArgs) -> Iterable[_ShapeRule]:
        protections = self._protections
        if arguments.SYSTEM_CRITICAL_PODS in protections:
            threshold = args.priority_threshold
            value = threshold.value if threshold is not None else None
            bound = min(SYSTEM_CRITICAL_PRIORITY, SYSTEM_CRITICAL_PRIORITY if value is None else value)
            yield lambda shape: shape.spec.priority is None or shape.spec.priority < bound
        if arguments.PODS_WITH_LOCAL_STORAGE in protections:
            yield lambda shape: not any(_is_local(volume) for volume in shape.spec.volumes)
        if arguments.PODS_WITH_RESOURCE_CLAIMS in protections:
            yield lambda shape: not shape.spec.resource_claims
        if arguments.PODS_WITH_PVC in protections and not _protected_classes(args):
            yield lambda shape: not any(volume.persistent_volume_claim for volume in shape.spec.volumes)
        if args.label_selector is not None:
            selector = compile_selector(args.label_selector)
            yield lambda shape: selector.matches(shape.labels)

    def _rules_of_pods(self, args: DefaultEvictorArgs) -> Iterable[_PodRule]:
        protections = self._protections
        bare, daemon_set = (name not in protections for name in (arguments.FAILED_BARE_PODS, arguments.DAEMON_SET_PODS))
        yield lambda pod, cluster: _has_evictable_owner(pod, bare=bare, daemon_set=daemon_set)
        if arguments.PODS_WITH_PVC in protections and (classes := _protected_classes(args)):
            yield lambda pod, cluster: _uses_none_of(classes, pod, cluster)
        if arguments.PODS_WITHOUT_PDB in protections:
            yield lambda pod, cluster: bool(self._budgets_of(cluster).selecting(pod.namespace, pod.labels))
        if args.min_replicas > 1:
            least = args.min_replicas
            yield lambda pod, cluster: len(pod.owners) != 1 or cluster.owned_by(pod.owners[0].uid) >= least
        if args.min_pod_age is not None:
            age = timedelta(seconds=args.min_pod_age.seconds)
            yield lambda pod, cluster: _started_before(pod, cluster, age)

    def _budgets_of(self, cluster: ClusterState) -> BudgetIndex:
        if self._budgets is None:
            self._budgets = BudgetIndex(cluster.budgets)
        return self._budgets

    # -- PreEvictionFilter ---------------------------------------------------------------------------------------

    def pre_eviction_filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        if self.args.node_fit and not self._fits_elsewhere(pod, cluster):
            return False
        if self._namespaces is None or self._namespaces.is_empty:
            return True
        labels = cluster.namespaces.get(pod.namespace)
        return labels is not None and self._namespaces.matches(labels)

    def _fits_elsewhere(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        if self._node_fit is None:
            self._node_fit = _FittingNodes(cluster, self._nodes)
        return self._node_fit.has_other(pod)


class _FittingNodes:
    """Node fit among the ready nodes that the evictor selects."""

    def __init__(self, cluster: ClusterState, selector: Selector) -> None:
        self._fit = NodeFit(cluster)
        self._candidates: Mask = np.zeros(len(cluster.nodes), np.bool_)
        self._candidates[cluster.ready_rows(selector)] = True

    def has_other(self, pod: AssignedPod) -> bool:
        return self._fit.fits_other(pod, self._candidates)


def _has_evictable_owner(pod: AssignedPod, *, bare: bool, daemon_set: bool) -> bool:
    """Whether a pod has owners and may be evicted for what they are; with ``bare`` failed pods need none."""
    owners = pod.pod.metadata.owner_references
    if not owners:
        return bare and pod.status.phase == "Failed"
    return daemon_set or "DaemonSet" not in [owner.kind for owner in owners]


def _is_local(volume: object) -> bool:
    return getattr(volume, "empty_dir", None) is not None or getattr(volume, "host_path", None) is not None


def _protected_classes(args: DefaultEvictorArgs) -> frozenset[str]:
    config = args.pod_protections.config
    claims = config.pods_with_pvc if config is not None else None
    return frozenset(entry.name for entry in claims.protected_storage_classes) if claims is not None else frozenset()


def _uses_none_of(classes: frozenset[str], pod: AssignedPod, cluster: ClusterState) -> bool:
    """Whether no claim of a pod is of one of the classes; a claim that is missing or has no class counts as one."""
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    for name in (source.claim_name for source in sources if source is not None):
        claim = cluster.claims.get((pod.namespace, name))
        if claim is None or not claim.spec.storage_class_name or claim.spec.storage_class_name in classes:
            return False
    return True


def _started_before(pod: AssignedPod, cluster: ClusterState, age: timedelta) -> bool:
    started = pod.status.start_time
    return started is not None and cluster.now - started >= age
