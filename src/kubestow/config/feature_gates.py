"""The feature gates that touch scheduling: which exist, their stage and default, what they need (semantics 3).

:class:`FeatureGates` is an immutable value: the defaults of Kubernetes 1.36 with somebody's choices laid over them.
A choice that cannot be (an unknown gate, a locked one, a gate without what it depends on) is refused when the value is
made, so whoever holds one may simply ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from kubestow.config.component_feature_gates import OTHER_FEATURES
from kubestow.errors import InputError

__all__ = ["FEATURE_SPECS", "FeatureGates", "FeatureSpec", "Stage"]

_FLAG = "--feature-gates"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Stage(StrEnum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A gate: its default, its stage, whether the default is final, and the gates that must be on with it."""

    stage: Stage
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()


def _alpha(*needs: str) -> FeatureSpec:
    return FeatureSpec(Stage.ALPHA, default=False, needs=needs)


def _beta(*needs: str, on: bool = True) -> FeatureSpec:
    return FeatureSpec(Stage.BETA, default=on, needs=needs)


def _ga(*needs: str, locked: bool = True) -> FeatureSpec:
    return FeatureSpec(Stage.GA, default=True, locked=locked, needs=needs)


_DRA = "DynamicResourceAllocation"

FEATURE_SPECS: Mapping[str, FeatureSpec] = MappingProxyType(
    {
        "ClearingNominatedNodeNameAfterBinding": _beta(),
        "ComponentFlagz": _beta(),
        "ComponentStatusz": _beta(),
        "CoordinatedLeaderElection": _beta(on=False),
        "DRAAdminAccess": _ga(_DRA),
        "DRAConsumableCapacity": _beta(_DRA),
        "DRADeviceBindingConditions": _beta(_DRA, "DRAResourceClaimDeviceStatus"),
        "DRADeviceTaintRules": _beta(_DRA, "DRADeviceTaints", on=False),
        "DRADeviceTaints": _beta(_DRA),
        "DRAExtendedResource": _beta(_DRA),
        "DRAListTypeAttributes": _alpha(_DRA),
        "DRANodeAllocatableResources": _alpha(_DRA),
        "DRAPartitionableDevices": _beta(_DRA),
        "DRAPrioritizedList": _ga(_DRA, locked=False),
        "DRAResourceClaimDeviceStatus": _beta(_DRA),
        "DRASchedulerFilterTimeout": _beta(_DRA),
        "DRAWorkloadResourceClaims": _alpha(_DRA, "GenericWorkload"),
        "DynamicResourceAllocation": _ga(),
        "GangScheduling": _alpha("GenericWorkload"),
        "GenericWorkload": _alpha(),
        "ImageVolume": _ga(),
        "InPlacePodLevelResourcesVerticalScaling": _beta(
            "InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"
        ),
        "InPlacePodVerticalScaling": _ga(),
        "MatchLabelKeysInPodAffinity": _ga(),
        "MatchLabelKeysInPodTopologySpread": _beta(),
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": _beta("MatchLabelKeysInPodTopologySpread"),
        "NativeHistograms": _alpha(),
        "NodeDeclaredFeatures": _beta(),
        "NodeInclusionPolicyInPodTopologySpread": _ga(),
        "NominatedNodeNameForExpectation": _beta(),
        "OpportunisticBatching": _beta(),
        "PodLevelResources": _beta(),
        "PodObservedGenerationTracking": _ga(),
        "PodSchedulingReadiness": _ga(),
        "SchedulerAsyncAPICalls": _beta(on=False),
        "SchedulerAsyncPreemption": _beta(),
        "SchedulerPopFromBackoffQ": _beta(),
        "SchedulerQueueingHints": _ga(),
        "SidecarContainers": _ga(),
        "StorageCapacityScoring": _alpha(),
        "TaintTolerationComparisonOperators": _alpha(),
        "TopologyAwareWorkloadScheduling": _alpha("GenericWorkload"),
        "VolumeAttributesClass": _ga(),
        "VolumeLimitScaling": _alpha(),
        "WorkloadAwarePreemption": _alpha("GangScheduling"),
    }
)
"""Every known gate by name."""

_ALL = MappingProxyType({"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA})


class FeatureGates:
    """The state of every known gate: the defaults, with ``choices`` over them.

    "AllAlpha" and "AllBeta" among the choices stand for every gate of the stage that is not chosen by name; gates of
    other components are let pass. Raises InputError, naming ``subject``, for choices that cannot be.
    """

    __slots__ = ("_enabled",)

    def __init__(self, choices: Mapping[str, bool] | None = None, *, subject: str = _FLAG) -> None:
        choices = choices or {}
        _refuse(subject, _impossible_choices(choices))
        self._enabled = frozenset(name for name, feature in FEATURE_SPECS.items() if _chosen(name, feature, choices))
        _refuse(subject, self._unmet_needs())

    @classmethod
    def parse(cls, text: str, *, subject: str = _FLAG) -> FeatureGates:
        """Read the value of ``--feature-gates``: "GangScheduling=true,GenericWorkload=true". Raises InputError."""
        return cls(dict(_assignment(part, subject) for part in text.split(",") if part), subject=subject)

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a gate that does not exist."""
        if name not in FEATURE_SPECS:
            raise KeyError(name)
        return name in self._enabled

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Every gate with its state, by name."""
        return ((name, name in self._enabled) for name in FEATURE_SPECS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and self._enabled == other._enabled

    def __hash__(self) -> int:
        return hash(self._enabled)

    def __repr__(self) -> str:
        differing = {
            name: name in self._enabled for name, f in FEATURE_SPECS.items() if f.default != (name in self._enabled)
        }
        return f"FeatureGates({differing})"

    def _unmet_needs(self) -> list[str]:
        unmet = {
            name: [n for n in FEATURE_SPECS[name].needs if n not in self._enabled] for name in sorted(self._enabled)
        }
        return [
            f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
            for name, missing in unmet.items()
            if missing
        ]


def _chosen(name: str, feature: FeatureSpec, choices: Mapping[str, bool]) -> bool:
    if name in choices:
        return choices[name]
    for group, stage in _ALL.items():
        if feature.stage is stage and group in choices:
            return choices[group]
    return feature.default


def _impossible_choices(choices: Mapping[str, bool]) -> list[str]:
    known = FEATURE_SPECS.keys() | _ALL.keys() | OTHER_FEATURES
    unknown = [f"unrecognized feature gate: {name}" for name in choices if name not in known]
    return unknown or [
        f"cannot set feature gate {name} to {_go(chosen)}, feature is locked to {_go(FEATURE_SPECS[name].default)}"
        for name, chosen in choices.items()
        if name in FEATURE_SPECS and FEATURE_SPECS[name].locked and chosen != FEATURE_SPECS[name].default
    ]


def _assignment(part: str, subject: str) -> tuple[str, bool]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise InputError(subject, f"missing bool value for {name}")
    if value not in _TRUE | _FALSE:
        raise InputError(subject, f"invalid value of {name}={value}, expected true or false")
    return name, value in _TRUE


def _refuse(subject: str, faults: list[str]) -> None:
    if faults:
        raise InputError(subject, "; ".join(faults))


def _go(value: bool) -> str:
    return "true" if value else "false"
