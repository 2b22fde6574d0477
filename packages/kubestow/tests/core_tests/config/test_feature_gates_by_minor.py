"""The feature gates of each minor version: stage, default and lock, and which of them exist."""

from __future__ import annotations

import pytest

from kubestow.config import FeatureGates, Stage, feature_specs
from kubestow.config.feature_gates import other_component_features
from kubestow.errors import InputError
from kubestow.rules.minors import DEFAULT_MINOR, MINORS, Behaviour, Minor

#: The gates of 1.36 to 1.31, from their releases: stage, on (+) or off (-), and whether the default is locked (L).
_TABLE = """
AtomicFIFO                                     Beta+   -       -       -       -       -
CSIMigrationPortworx                           -       GA+L    GA+L    GA+L    Beta+   Beta+
ClearingNominatedNodeNameAfterBinding          Beta+   Beta+   Alpha-  -       -       -
ComponentFlagz                                 Beta+   Alpha-  Alpha-  Alpha-  Alpha-  -
ComponentStatusz                               Beta+   Alpha-  Alpha-  Alpha-  Alpha-  -
CoordinatedLeaderElection                      Beta-   Beta-   Beta-   Beta-   Alpha-  Alpha-
DRAAdminAccess                                 GA+L    Beta+   Beta+   Alpha-  Alpha-  -
DRAConsumableCapacity                          Beta+   Alpha-  Alpha-  -       -       -
DRAControlPlaneController                      -       -       -       -       -       Alpha-
DRADeviceBindingConditions                     Beta+   Alpha-  Alpha-  -       -       -
DRADeviceTaintRules                            Beta-   Alpha-  -       -       -       -
DRADeviceTaints                                Beta+   Alpha-  Alpha-  Alpha-  -       -
DRAExtendedResource                            Beta+   Alpha-  Alpha-  -       -       -
DRAListTypeAttributes                          Alpha-  -       -       -       -       -
DRANodeAllocatableResources                    Alpha-  -       -       -       -       -
DRAPartitionableDevices                        Beta+   Alpha-  Alpha-  Alpha-  -       -
DRAPrioritizedList                             GA+     Beta+   Beta+   Alpha-  -       -
DRAResourceClaimDeviceStatus                   Beta+   Beta+   Beta+   Beta+   Alpha-  -
DRAResourceClaimGranularStatusAuthorization    Beta+   -       -       -       -       -
DRASchedulerFilterTimeout                      Beta+   Beta+   Beta+   -       -       -
DRAWorkloadResourceClaims                      Alpha-  -       -       -       -       -
DynamicResourceAllocation                      GA+L    GA+L    GA+     Beta-   Beta-   Alpha-
GangScheduling                                 Alpha-  Alpha-  -       -       -       -
GenericWorkload                                Alpha-  Alpha-  -       -       -       -
ImageVolume                                    GA+L    Beta+   Beta-   Beta-   Alpha-  Alpha-
InOrderInformers                               GA+L    Beta+   Beta+   Beta+   -       -
InOrderInformersBatchProcess                   Beta+   Beta+   -       -       -       -
InPlacePodLevelResourcesVerticalScaling        Beta+   Alpha-  -       -       -       -
InPlacePodVerticalScaling                      GA+L    GA+L    Beta+   Beta+   Alpha-  Alpha-
MatchLabelKeysInPodAffinity                    GA+L    GA+L    GA+L    GA+L    Beta+   Beta+
MatchLabelKeysInPodTopologySpread              Beta+   Beta+   Beta+   Beta+   Beta+   Beta+
MatchLabelKeysInPodTopologySpreadSelectorMerge Beta+   Beta+   Beta+   -       -       -
MinDomainsInPodTopologySpread                  -       -       -       -       -       GA+L
MutableCSINodeAllocatableCount                 GA+L    Beta+   Beta-   Alpha-  -       -
NodeDeclaredFeatures                           Beta+   Alpha-  -       -       -       -
NodeInclusionPolicyInPodTopologySpread         GA+L    GA+L    GA+L    GA+L    Beta+   Beta+
NominatedNodeNameForExpectation                Beta+   Beta+   Alpha-  -       -       -
OpportunisticBatching                          Beta+   Beta+   -       -       -       -
PodDisruptionConditions                        -       -       -       GA+L    GA+L    GA+L
PodLevelResources                              Beta+   Beta+   Beta+   Alpha-  Alpha-  -
PodObservedGenerationTracking                  GA+L    GA+L    Beta+   Alpha-  -       -
PodSchedulingReadiness                         GA+L    GA+L    GA+L    GA+L    GA+L    GA+L
SchedulerAsyncAPICalls                         Beta-   Beta-   Beta-   -       -       -
SchedulerAsyncPreemption                       Beta+   Beta+   Beta+   Beta+   Alpha-  -
SchedulerPopFromBackoffQ                       Beta+   Beta+   Beta+   Beta+   -       -
SchedulerQueueingHints                         GA+L    GA+L    GA+L    Beta+   Beta+   Beta-
SidecarContainers                              GA+L    GA+L    GA+L    GA+L    Beta+   Beta+
StorageCapacityScoring                         Alpha-  Alpha-  Alpha-  Alpha-  -       -
TaintTolerationComparisonOperators             Alpha-  Alpha-  -       -       -       -
TopologyAwareWorkloadScheduling                Alpha-  -       -       -       -       -
VolumeAttributesClass                          GA+L    GA+     GA+     Beta-   Beta-   Beta-
VolumeCapacityPriority                         -       -       -       -       Alpha-  Alpha-
VolumeLimitScaling                             Alpha-  Alpha-  -       -       -       -
WatchListClient                                Beta+   Beta+   Beta-   Beta-   Beta-   Beta-
WorkloadAwarePreemption                        Alpha-  -       -       -       -       -
"""
_ROWS = [line.split() for line in _TABLE.strip().splitlines()]
_NEWEST_FIRST = [Minor(number) for number in (36, 35, 34, 33, 32, 31)]


@pytest.mark.parametrize(("name", "cells"), [(name, cells) for name, *cells in _ROWS])
def test_stage_default_and_lock_are_those_of_each_minor_version(name: str, cells: list[str]) -> None:
    for minor, cell in zip(_NEWEST_FIRST, cells, strict=True):
        spec = {**feature_specs(minor), **other_component_features(minor)}.get(name)
        if cell == "-":
            assert spec is None, minor
        else:
            stage, on = cell.rstrip("L")[:-1], "+" in cell
            assert spec is not None, minor
            assert (spec.stage, spec.default, spec.lock_to_default) == (Stage(stage.upper()), on, "L" in cell), minor


@pytest.mark.parametrize(("name", "cells"), [(name, cells) for name, *cells in _ROWS])
def test_gates_that_do_not_exist_in_a_minor_version_are_refused(name: str, cells: list[str]) -> None:
    for minor, cell in zip(_NEWEST_FIRST, cells, strict=True):
        default = "+" in cell
        if cell == "-":
            with pytest.raises(InputError, match=f"unrecognized feature gate: {name}, (known since|removed in) 1"):
                FeatureGates({name: default}, minor=minor)
        else:
            assert FeatureGates({name: default}, minor=minor) == FeatureGates(minor=minor)


@pytest.mark.parametrize(
    ("text", "minor", "error"),
    [
        ("GangScheduling=true", 34, "unrecognized feature gate: GangScheduling, known since 1.35"),
        ("DRAControlPlaneController=true", 32, "unrecognized feature gate: DRAControlPlaneController, removed in 1.32"),
        ("VolumeCapacityPriority=true", 33, "unrecognized feature gate: VolumeCapacityPriority, removed in 1.33"),
        ("HPAContainerMetrics=true", 36, "unrecognized feature gate: HPAContainerMetrics, removed in 1.32"),
        ("Nope=true", 33, "unrecognized feature gate: Nope"),
        ("DynamicResourceAllocation=false", 35, "cannot set feature gate DynamicResourceAllocation to false, feature"),
    ],
)
def test_errors_name_the_minor_version_that_brought_or_removed_a_gate(text: str, minor: int, error: str) -> None:
    with pytest.raises(InputError) as raised:
        FeatureGates.parse(text, minor=Minor(minor))
    assert str(raised.value).startswith(f"--feature-gates: {error}")


def test_dependencies_count_where_gates_need_them() -> None:
    override = {"DRADeviceBindingConditions": True, "DRAResourceClaimDeviceStatus": False}
    for minor in MINORS:
        specs = feature_specs(minor)
        if not specs.keys() >= override.keys() or specs["DRAResourceClaimDeviceStatus"].lock_to_default:
            continue
        if minor.has(Behaviour.GATES_NEED_THEIR_DEPENDENCIES):
            with pytest.raises(InputError, match="depends on features that are disabled"):
                FeatureGates(override, minor=minor)
        else:
            assert FeatureGates(override, minor=minor).enabled("DRADeviceBindingConditions")
    assert not Minor(34).has(Behaviour.GATES_NEED_THEIR_DEPENDENCIES)
    assert Minor(35).has(Behaviour.GATES_NEED_THEIR_DEPENDENCIES)


def test_what_a_gate_enabled_stays_on_if_it_was_removed_when_it_was_locked_to_be_on() -> None:
    for minor in (Minor(36), Minor(37)):
        assert FeatureGates(minor=minor).enabled("SchedulerQueueingHints")
    assert not FeatureGates(minor=DEFAULT_MINOR).enabled("VolumeCapacityPriority")
    assert "SchedulerQueueingHints" not in dict(FeatureGates(minor=Minor(37)))


@pytest.mark.parametrize("merged", ["GangScheduling", "WorkloadAwarePreemption"])
def test_the_gates_of_pod_groups_were_merged_into_one(merged: str) -> None:
    chosen = {"GenericWorkload": True}
    assert not FeatureGates(chosen, minor=Minor(36)).enabled(merged)
    assert FeatureGates(chosen, minor=Minor(37)).enabled(merged)
    assert not FeatureGates(minor=Minor(37)).enabled(merged)
    with pytest.raises(InputError, match=f"unrecognized feature gate: {merged}, removed in 1.37"):
        FeatureGates({merged: True}, minor=Minor(37))


def test_a_gate_of_a_former_minor_version_that_is_not_implemented_is_named() -> None:
    gates = FeatureGates.parse("DRAControlPlaneController=true", minor=Minor(31))
    assert gates.without_effect == ("DRAControlPlaneController",)
