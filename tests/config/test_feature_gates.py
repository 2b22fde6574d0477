from __future__ import annotations

import pytest

from kubestow.config import FEATURE_SPECS, FeatureGates, Stage
from kubestow.errors import InputError


def test_gates_are_as_in_kubernetes_unless_chosen() -> None:
    gates = FeatureGates()
    assert {name for name, on in gates if on} == {name for name, feature in FEATURE_SPECS.items() if feature.default}
    assert gates.enabled("SchedulerAsyncPreemption")
    assert not gates.enabled("SchedulerAsyncAPICalls")


def test_the_flag_is_read() -> None:
    gates = FeatureGates.parse("StorageCapacityScoring=true, OpportunisticBatching = F,,")
    assert gates.enabled("StorageCapacityScoring")
    assert not gates.enabled("OpportunisticBatching")
    assert gates == FeatureGates({"StorageCapacityScoring": True, "OpportunisticBatching": False})


@pytest.mark.parametrize(
    ("text", "problem"),
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
def test_a_choice_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refusal:
        FeatureGates.parse(text)
    assert str(refusal.value) == f"--feature-gates: {problem}"


def test_a_locked_gate_may_be_set_to_what_it_is() -> None:
    assert FeatureGates({"SchedulerQueueingHints": True}) == FeatureGates()


def test_a_gate_goes_with_what_it_needs() -> None:
    gates = FeatureGates.parse("WorkloadAwarePreemption=true,GangScheduling=true,GenericWorkload=true")
    assert gates.enabled("WorkloadAwarePreemption")


def test_all_alpha_means_every_alpha_gate_not_chosen_by_name() -> None:
    gates = FeatureGates.parse("AllAlpha=true,NativeHistograms=false")
    chosen = {name for name, on in gates if on and FEATURE_SPECS[name].stage is Stage.ALPHA}
    assert chosen == {name for name, f in FEATURE_SPECS.items() if f.stage is Stage.ALPHA} - {"NativeHistograms"}


def test_all_beta_can_be_turned_off() -> None:
    gates = FeatureGates({"AllBeta": False})
    assert not any(on for name, on in gates if FEATURE_SPECS[name].stage is Stage.BETA)


def test_what_features_need_exists() -> None:
    assert {need for feature in FEATURE_SPECS.values() for need in feature.needs} <= FEATURE_SPECS.keys()


def test_asking_for_a_gate_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        FeatureGates().enabled("Nope")


def test_gates_of_other_components_are_let_pass_and_change_nothing() -> None:
    assert FeatureGates.parse("GracefulNodeShutdown=false,NodeSwap=true") == FeatureGates()
