"""The arguments of DefaultEvictor, and their validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from kubestow.api.formats.duration import Duration
from kubestow.api.meta import LabelSelector
from kubestow.api.selector_text import parse_selector
from kubestow.descheduling.interface import Problem
from kubestow.descheduling.pod_selection import selector_problems
from kubestow.errors import InvalidSelector

__all__ = [
    "DAEMON_SET_PODS",
    "FAILED_BARE_PODS",
    "MANDATORY",
    "PODS_WITHOUT_PDB",
    "PODS_WITH_LOCAL_STORAGE",
    "PODS_WITH_PVC",
    "PODS_WITH_RESOURCE_CLAIMS",
    "SYSTEM_CRITICAL_PODS",
    "SYSTEM_CRITICAL_PRIORITY",
    "DefaultEvictorArgs",
    "PriorityThreshold",
    "problems",
    "protections",
]

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


def problems(args: DefaultEvictorArgs) -> Iterator[Problem]:
    """The mistakes in the arguments."""
    threshold = args.priority_threshold
    if threshold is not None and threshold.value is not None and threshold.name:
        yield Problem(
            "priorityThreshold", "priority threshold misconfigured, only one of priorityThreshold fields can be set"
        )
    if args.no_eviction_policy not in ("", PREFERRED, MANDATORY):
        yield Problem("noEvictionPolicy", f'noEvictionPolicy accepts only ["{PREFERRED}" "{MANDATORY}"] values')
    if args.min_replicas < 0:
        yield Problem("minReplicas", f"must be 0 or more, got {args.min_replicas}")
    if args.min_pod_age is not None and args.min_pod_age < Duration():
        yield Problem("minPodAge", f"must be 0 or more, got {args.min_pod_age}")
    if args.node_selector:
        try:
            parse_selector(args.node_selector)
        except InvalidSelector as error:
            yield Problem("nodeSelector", str(error))
    yield from selector_problems("labelSelector", args.label_selector)
    yield from selector_problems("namespaceLabelSelector", args.namespace_label_selector)
    if args.pod_protections.names_any:
        yield from _protection_problems(args)


def _protection_problems(args: DefaultEvictorArgs) -> Iterator[Problem]:
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
        yield Problem(
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
                yield Problem(f"podProtections.{field}[{index}]", text)
    for field, label, names, _ in reversed(lists):
        if len(set(names)) < len(names):
            yield Problem(f"podProtections.{field}", f"PodProtections.{label} contains duplicate entries")
    if PODS_WITH_PVC in given.extra_enabled:
        yield from _storage_class_problems(given)


def _storage_class_problems(given: PodProtections) -> Iterator[Problem]:
    config = given.config.pods_with_pvc if given.config else None
    for index, storage_class in enumerate(config.protected_storage_classes if config else ()):
        if not storage_class.name:
            path = f"PodsWithPVC.protectedStorageClasses[{index}]"
            text = f"PodProtections.Config.PodsWithPVC.ProtectedStorageClasses[{index}] name cannot be empty"
            yield Problem(f"podProtections.config.{path}.name", text)
