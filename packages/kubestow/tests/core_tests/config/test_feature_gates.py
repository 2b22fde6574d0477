from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubestow.config import FeatureGates, Stage, feature_gates, feature_specs
from kubestow.config.feature_gates import other_component_features
from kubestow.errors import InputError


def test_gates_have_the_defaults_of_kubernetes() -> None:
    gates = FeatureGates()
    assert {name for name, on in gates if on} == {name for name, feature in feature_specs().items() if feature.default}
    assert gates.enabled("SchedulerAsyncPreemption")
    assert not gates.enabled("SchedulerAsyncAPICalls")


def test_the_flag_is_parsed() -> None:
    gates = FeatureGates.parse("StorageCapacityScoring=true, OpportunisticBatching = F,,")
    assert gates.enabled("StorageCapacityScoring")
    assert not gates.enabled("OpportunisticBatching")
    assert gates == FeatureGates({"StorageCapacityScoring": True, "OpportunisticBatching": False})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("VolumeLimitScaling", "missing bool value for VolumeLimitScaling"),
        ("VolumeLimitScaling=yes", "invalid value of VolumeLimitScaling=yes, expected true or false"),
        (
            "SchedulerQueueingHints=false",
            "cannot set feature gate SchedulerQueueingHints to false, feature is locked to true",
        ),
        (
            "GangScheduling=true",
            "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            "MatchLabelKeysInPodTopologySpread=false",
            "MatchLabelKeysInPodTopologySpreadSelectorMerge is enabled, but depends on features that are disabled:"
            " [MatchLabelKeysInPodTopologySpread]",
        ),
    ],
)
def test_an_invalid_override_is_rejected(text: str, error: str) -> None:
    with pytest.raises(InputError) as raised:
        FeatureGates.parse(text)
    assert str(raised.value) == f"--feature-gates: {error}"


def test_a_locked_gate_can_be_set_to_its_default() -> None:
    assert FeatureGates({"SchedulerQueueingHints": True}) == FeatureGates()


def test_a_gate_can_be_enabled_with_its_dependencies() -> None:
    gates = FeatureGates.parse("WorkloadAwarePreemption=true,GangScheduling=true,GenericWorkload=true")
    assert gates.enabled("WorkloadAwarePreemption")


def test_all_alpha_applies_to_alpha_gates_without_an_override() -> None:
    gates = FeatureGates.parse("AllAlpha=true,NativeHistograms=false")
    chosen = {name for name, on in gates if on and feature_specs()[name].stage is Stage.ALPHA}
    assert chosen == {name for name, f in feature_specs().items() if f.stage is Stage.ALPHA} - {"NativeHistograms"}


def test_all_beta_can_be_disabled() -> None:
    gates = FeatureGates({"AllBeta": False})
    assert not any(on for name, on in gates if feature_specs()[name].stage is Stage.BETA)


def test_all_dependencies_are_known_gates() -> None:
    assert {name for spec in feature_specs().values() for name in spec.dependencies} <= feature_specs().keys()


def test_a_gate_that_was_switched_stays_so_in_the_same_minor_version() -> None:
    gates = FeatureGates()
    for name in ("GangScheduling", "NodeDeclaredFeatures"):
        switched = gates.switched(name, on=not gates.enabled(name))
        assert switched.emulating(gates.minor).enabled(name) is not gates.enabled(name)


def test_an_unknown_gate_raises_key_error() -> None:
    with pytest.raises(KeyError):
        FeatureGates().enabled("Nope")


def test_gates_of_other_components_are_accepted_and_ignored() -> None:
    assert FeatureGates.parse("GracefulNodeShutdown=false,NodeSwap=true") == FeatureGates()


@pytest.mark.parametrize(
    "text",
    [
        "ClientsAllowCBOR=true,WatchListClient=false",  # client-go
        "CustomCPUCFSQuotaPeriod=true,MemoryQoS=true,NodeSwap=true",  # the kubelet; the last is locked on
        "CRDObservedGenerationTracking=true,ShardedListAndWatch=true",  # the API servers
        "CloudControllerManagerWebhook=true,ControllerManagerReleaseLeaderElectionLockOnExit=true",
        "ContextualLogging=false,LoggingAlphaOptions=true",
        "SystemdWatchdog=true,RuntimeClassInImageCriApi=true",
    ],
)
def test_one_flag_serves_all_components(text: str) -> None:
    assert FeatureGates.parse(text) == FeatureGates()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("NodeSwap=false", "cannot set feature gate NodeSwap to false, feature is locked to true"),
        ("GitRepoVolumeDriver=true", "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false"),
        ("SystemdWatchdog=false", "cannot set feature gate SystemdWatchdog to false, feature is locked to true"),
        ("HonorPVReclaimPolicy=true", "unrecognized feature gate: HonorPVReclaimPolicy, removed in 1.36"),
    ],
)
def test_locked_and_removed_gates_of_other_components_are_rejected(text: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        FeatureGates.parse(text)


def test_no_gate_is_both_known_and_ignored() -> None:
    assert not feature_specs().keys() & other_component_features().keys()


def test_gates_that_were_enabled_without_effect_are_known() -> None:
    assert FeatureGates().without_effect == ()  # OpportunisticBatching is on by default
    enabled = FeatureGates.parse("NativeHistograms=true,DRAListTypeAttributes=true,CoordinatedLeaderElection=false")
    assert enabled.without_effect == ("DRAListTypeAttributes", "NativeHistograms")


def test_the_data_have_the_history_of_each_gate() -> None:
    file = Path(feature_gates.__file__).with_name("feature_gates.json")
    data = json.loads(file.read_bytes())
    for name, gate in (data["scheduling"] | data["others"]).items():
        minors = [version[0] for version in gate["versions"]]
        assert minors == sorted(set(minors)), name
    assert data["scheduling"]["SchedulerQueueingHints"]["versions"] == [
        [31, "BETA", False, False],
        [32, "BETA", True, False],
        [34, "GA", True, True],
    ]
