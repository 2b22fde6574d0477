"""DefaultEvictor: which pods may be evicted at all, by protections, thresholds and node fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Annotated

import msgspec
import numpy as np

from kubestow.api.formats.duration import Duration
from kubestow.api.meta import LabelSelector
from kubestow.api.selector_text import parse_selector
from kubestow.api.selectors import Selector, compile_selector
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import PREFER_NO_EVICTION
from kubestow.descheduling.interface import ArgumentProblem, FilterPlugin, PreEvictionFilterPlugin
from kubestow.descheduling.node_fit import Mask, NodeFit
from kubestow.descheduling.pod_selection import selector_problems
from kubestow.errors import InvalidSelector
from kubestow.rules.disruption import BudgetIndex

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""The lowest priority of system-critical pods, and the default threshold."""

PREFERRED, MANDATORY = "Preferred", "Mandatory"

PODS_WITH_LOCAL_STORAGE = "PodsWithLocalStorage"
SYSTEM_CRITICAL_PODS = "SystemCriticalPods"
FAILED_BARE_PODS = "FailedBarePods"
DAEMON_SET_PODS = "DaemonSetPods"
PODS_WITH_PVC = "PodsWithPVC"
PODS_WITHOUT_PDB = "PodsWithoutPDB"
PODS_WITH_RESOURCE_CLAIMS = "PodsWithResourceClaims"

_DEFAULT = (PODS_WITH_LOCAL_STORAGE, SYSTEM_CRITICAL_PODS, FAILED_BARE_PODS, DAEMON_SET_PODS)
_EXTRA = (PODS_WITH_PVC, PODS_WITHOUT_PDB, PODS_WITH_RESOURCE_CLAIMS)


class PriorityThreshold(msgspec.Struct, frozen=True):
    """A priority, or the PriorityClass that has it; pods at or above it are protected."""

    value: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    name: str = ""


class ProtectedStorageClass(msgspec.Struct, frozen=True):
    """A storage class whose claims protect a pod."""

    name: str = ""


class PodsWithPVCConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Restricts PodsWithPVC to claims of some storage classes; without any, all claims protect."""

    protected_storage_classes: tuple[ProtectedStorageClass, ...] = ()


class PodProtectionsConfig(msgspec.Struct, frozen=True):
    """Settings of single protections, by their names."""

    pods_with_pvc: PodsWithPVCConfig | None = msgspec.field(default=None, name="PodsWithPVC")


class PodProtections(msgspec.Struct, frozen=True, rename="camel"):
    """Protections beyond the default ones, and default ones that do not apply."""

    extra_enabled: tuple[str, ...] = ()
    default_disabled: tuple[str, ...] = ()
    config: PodProtectionsConfig | None = None

    @property
    def names_any(self) -> bool:
        """Whether it names a protection; it then takes the place of the older switches."""
        return bool(self.extra_enabled or self.default_disabled)


class DefaultEvictorArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of DefaultEvictor."""

    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: int = 0
    min_pod_age: Duration | None = None
    no_eviction_policy: str = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = msgspec.field(default=False, name="ignorePodsWithoutPDB")


def protections(args: DefaultEvictorArgs) -> frozenset[str]:
    """The protections that apply."""
    given = args.pod_protections
    if given.names_any:
        return frozenset(_DEFAULT) - frozenset(given.default_disabled) | frozenset(given.extra_enabled)
    switches = {
        PODS_WITH_LOCAL_STORAGE: not args.evict_local_storage_pods,
        DAEMON_SET_PODS: not args.evict_daemon_set_pods,
        SYSTEM_CRITICAL_PODS: not args.evict_system_critical_pods,
        FAILED_BARE_PODS: not args.evict_failed_bare_pods,
        PODS_WITH_PVC: args.ignore_pvc_pods,
        PODS_WITHOUT_PDB: args.ignore_pods_without_pdb,
    }
    return frozenset(name for name, applies in switches.items() if applies)


def _protection_problems(args: DefaultEvictorArgs) -> Iterator[ArgumentProblem]:
    given = args.pod_protections
    switches = (
        args.evict_local_storage_pods,
        args.evict_daemon_set_pods,
        args.evict_system_critical_pods,
        args.evict_failed_bare_pods,
        args.ignore_pvc_pods,
        args.ignore_pods_without_pdb,
    )
    if any(switches):
        yield ArgumentProblem(
            "podProtections",
            "cannot use Deprecated fields alongside PodProtections.ExtraEnabled or PodProtections.DefaultDisabled",
        )
    lists = (
        ("extraEnabled", "ExtraEnabled", given.extra_enabled, _EXTRA),
        ("defaultDisabled", "DefaultDisabled", given.default_disabled, _DEFAULT),
    )
    for field, label, names, known in lists:
        for index, name in enumerate(names):
            if name not in known:
                text = f'invalid pod protection policy in {label}: "{name}". Valid options are: [{" ".join(known)}]'
                yield ArgumentProblem(f"podProtections.{field}[{index}]", text)
    for field, label, names, _ in reversed(lists):
        if len(set(names)) < len(names):
            yield ArgumentProblem(f"podProtections.{field}", f"PodProtections.{label} contains duplicate entries")
    if PODS_WITH_PVC in given.extra_enabled:
        yield from _storage_class_problems(given)


def _storage_class_problems(given: PodProtections) -> Iterator[ArgumentProblem]:
    config = given.config.pods_with_pvc if given.config else None
    for index, storage_class in enumerate(config.protected_storage_classes if config else ()):
        if not storage_class.name:
            path = f"PodsWithPVC.protectedStorageClasses[{index}]"
            text = f"PodProtections.Config.PodsWithPVC.ProtectedStorageClasses[{index}] name cannot be empty"
            yield ArgumentProblem(f"podProtections.config.{path}.name", text)


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
    def validate(cls, args: DefaultEvictorArgs) -> Iterator[ArgumentProblem]:
        threshold = args.priority_threshold
        if threshold is not None and threshold.value is not None and threshold.name:
            yield ArgumentProblem(
                "priorityThreshold", "priority threshold misconfigured, only one of priorityThreshold fields can be set"
            )
        if args.no_eviction_policy not in ("", PREFERRED, MANDATORY):
            yield ArgumentProblem(
                "noEvictionPolicy", f'noEvictionPolicy accepts only ["{PREFERRED}" "{MANDATORY}"] values'
            )
        if args.min_replicas < 0:
            yield ArgumentProblem("minReplicas", f"must be 0 or more, got {args.min_replicas}")
        if args.min_pod_age is not None and args.min_pod_age < Duration():
            yield ArgumentProblem("minPodAge", f"must be 0 or more, got {args.min_pod_age}")
        if args.node_selector:
            try:
                parse_selector(args.node_selector)
            except InvalidSelector as error:
                yield ArgumentProblem("nodeSelector", str(error))
        yield from selector_problems("labelSelector", args.label_selector)
        yield from selector_problems("namespaceLabelSelector", args.namespace_label_selector)
        if args.pod_protections.names_any:
            yield from _protection_problems(args)

    def __init__(self, args: DefaultEvictorArgs) -> None:
        """The threshold in ``args`` has a value.

        See :func:`kubestow.descheduling.descheduler_policy.with_priority_thresholds`.
        """
        super().__init__(args)
        self._protections = protections(args)
        self._shape_rules = list(self._rules_of_shapes(args))
        self._pod_rules = list(self._rules_of_pods(args))
        namespaces = args.namespace_label_selector
        self._namespaces = None if namespaces is None else compile_selector(namespaces)
        self._nodes: Selector = parse_selector(args.node_selector)
        self.loop_ended()

    def loop_ended(self) -> None:
        #: Node fit, and the ready nodes that the evictor selects.
        self._node_fit: tuple[NodeFit, Mask] | None = None
        self._budgets: BudgetIndex | None = None
        #: What the protections say about the pods of a shape.
        self._accepted: dict[Shape, bool] = {}

    # -- Filter --------------------------------------------------------------------------------------------------

    def filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        annotations = pod.annotations
        if annotations:
            if _EVICT in annotations:
                return True
            if self.args.no_eviction_policy == MANDATORY and PREFER_NO_EVICTION in annotations:
                return False
            if _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api":
                return False
        if pod.terminating:
            return False
        accepted = self._accepted.get(pod.shape)
        if accepted is None:
            accepted = self._accepted[pod.shape] = all(rule(pod.shape) for rule in self._shape_rules)
        return accepted and all(rule(pod, cluster) for rule in self._pod_rules)

    def _rules_of_shapes(self, args: DefaultEvictorArgs) -> Iterable[_ShapeRule]:
        protections = self._protections
        if SYSTEM_CRITICAL_PODS in protections:
            threshold = args.priority_threshold
            value = threshold.value if threshold is not None else None
            bound = min(SYSTEM_CRITICAL_PRIORITY, SYSTEM_CRITICAL_PRIORITY if value is None else value)
            yield lambda shape: shape.spec.priority is None or shape.spec.priority < bound
        if PODS_WITH_LOCAL_STORAGE in protections:
            yield lambda shape: not any(_is_local(volume) for volume in shape.spec.volumes)
        if PODS_WITH_RESOURCE_CLAIMS in protections:
            yield lambda shape: not shape.spec.resource_claims
        if PODS_WITH_PVC in protections and not _protected_classes(args):
            yield lambda shape: not any(volume.persistent_volume_claim for volume in shape.spec.volumes)
        if args.label_selector is not None:
            selector = compile_selector(args.label_selector)
            yield lambda shape: selector.matches(shape.labels)

    def _rules_of_pods(self, args: DefaultEvictorArgs) -> Iterable[_PodRule]:
        protections = self._protections
        bare, daemon_set = (name not in protections for name in (FAILED_BARE_PODS, DAEMON_SET_PODS))
        yield lambda pod, cluster: _has_evictable_owner(pod, bare=bare, daemon_set=daemon_set)
        if PODS_WITH_PVC in protections and (classes := _protected_classes(args)):
            yield lambda pod, cluster: _uses_none_of(classes, pod, cluster)
        if PODS_WITHOUT_PDB in protections:
            yield lambda pod, cluster: bool(self._budgets_of(cluster).selecting(pod.namespace, pod.labels))
        if args.min_replicas > 1:
            least = args.min_replicas
            yield lambda pod, cluster: len(pod.owners) != 1 or cluster.owned_by(pod.owners[0].uid) >= least
        if args.min_pod_age is not None:
            age = timedelta(seconds=args.min_pod_age.seconds)
            yield lambda pod, cluster: (started := pod.status.start_time) is not None and cluster.now - started >= age

    def _budgets_of(self, cluster: ClusterState) -> BudgetIndex:
        if self._budgets is None:
            self._budgets = BudgetIndex(cluster.budgets)
        return self._budgets

    # -- PreEvictionFilter ---------------------------------------------------------------------------------------

    def pre_eviction_filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        if self.args.node_fit:
            if self._node_fit is None:
                candidates = np.zeros(len(cluster.nodes), np.bool_)
                candidates[cluster.ready_rows(self._nodes)] = True
                self._node_fit = NodeFit(cluster), candidates
            fit, candidates = self._node_fit
            if not fit.fits_other(pod, candidates):
                return False
        if self._namespaces is None or self._namespaces.is_empty:
            return True
        labels = cluster.namespaces.get(pod.namespace)
        return labels is not None and self._namespaces.matches(labels)


def _has_evictable_owner(pod: AssignedPod, *, bare: bool, daemon_set: bool) -> bool:
    """Whether a pod has owners and may be evicted for what they are; with ``bare`` failed pods need none."""
    if not pod.owners:
        return bare and pod.status.phase == "Failed"
    return daemon_set or "DaemonSet" not in [owner.kind for owner in pod.owners]


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
