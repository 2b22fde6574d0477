"""Configurations of managed Kubernetes services: what they stand for, and what the service does not accept."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.config import legacy
from kubestow.config.managed_services import read_document
from kubestow.errors import ConfigurationError
from kubestow.plugins.configuration_file import diagnose_configuration, remarks
from kubestow.plugins.registry import find_plugins
from kubestow.rules.minors import DEFAULT_MINOR

#: As learn.microsoft.com/azure/aks/configure-aks-scheduler has it, in other words.
AKS = """\
apiVersion: aks.azure.com/v1alpha1
kind: SchedulerConfiguration
metadata:
  name: upstream
spec:
  rawConfig: |
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    percentageOfNodesToScore: 40
    profiles:
    - schedulerName: packing
      pluginConfig:
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: MostAllocated
            resources:
            - name: cpu
              weight: 1
"""


def strategies(source: Any) -> dict[str, tuple[str, list[str]]]:
    """The scoring strategy of each profile, and the resources that it is about."""
    loaded = config.load(source)
    found = {}
    for profile in loaded.profiles:
        [strategy] = [each.args.scoring_strategy for each in profile.plugin_config if each.name == "NodeResourcesFit"]
        found[profile.scheduler_name] = (strategy.type, [resource.name for resource in strategy.resources])
    return found


def messages(source: str) -> list[str]:
    """The mistakes that `kubestow config check` finds, each with its line."""
    errors = diagnose_configuration(source.encode(), config.FeatureGates(), find_plugins(minor=DEFAULT_MINOR))
    return [f"{error.line}: {error.path.rpartition('.')[2]}: {error.message}" for error in errors]


def remarks_about(source: str) -> list[str]:
    registry = find_plugins(minor=DEFAULT_MINOR)
    return [f"{each.line}: {each.message}" for each in remarks(source.encode(), config.load(source), registry,
                                                               minor=DEFAULT_MINOR)]  # fmt: skip


DEFAULT = ("LeastAllocated", ["cpu", "memory"])


# -- AKS -------------------------------------------------------------------------------------------------------------


def test_aks_adds_profiles_to_those_that_it_has_anyway() -> None:
    assert strategies(AKS) == {
        "packing": ("MostAllocated", ["cpu"]),
        "default-scheduler": DEFAULT,
        "aks-system": DEFAULT,
    }
    assert config.load(AKS).percentage_of_nodes_to_score == 40
    everywhere = strategies(AKS.replace("packing", "default-scheduler"))
    assert everywhere == {"default-scheduler": ("MostAllocated", ["cpu"]), "aks-system": DEFAULT}


def test_mistakes_have_their_places_in_the_object_of_aks() -> None:
    assert messages(AKS.replace("weight: 1", "weight: 101").replace("upstream", "mine")) == [
        "4: name: AKS reads upstream only, got 'mine'",
        "19: weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
    ]
    assert messages(AKS.replace("packing", "aks-system")) == [
        "11: schedulerName: AKS does not allow a profile aks-system"
    ]
    assert messages(AKS.replace("rawConfig: |", "raw: |")) == [
        "5: rawConfig: expected the text of a KubeSchedulerConfiguration"
    ]


@pytest.mark.parametrize("raw", ["profiles: 1", "profiles: [1]", "[]", "''", "kind: Policy", "a: [", "profiles: {}"])
def test_a_configuration_of_another_shape_is_an_error_and_no_exception(raw: str) -> None:
    assert messages(AKS.partition("    apiVersion: kube")[0] + f"    {raw}\n")


def test_what_aks_does_not_document_is_a_remark() -> None:
    source = AKS.replace("percentageOfNodesToScore: 40", "parallelism: 8").replace("packing", "default_scheduler")
    assert remarks_about(source) == [
        "9: is not among the fields that AKS documents as configurable",
        "11: pods without a scheduler name have default-scheduler, which is another name",
    ]
    assert remarks_about(AKS) == []


# -- EKS -------------------------------------------------------------------------------------------------------------

STRATEGY = {"type": "MostAllocated", "resources": [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}]}
FIT = {"nodeResourcesFit": {"scoringStrategy": STRATEGY}}


@pytest.mark.parametrize(
    "document",
    [
        FIT,
        {"kubeSchedulerConfig": FIT, "name": "mine"},
        {"cluster": {"kubeSchedulerConfig": FIT, "version": "1.35"}},
        {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig", "kubeSchedulerConfig": FIT},
        {"kind": "AWSManagedControlPlane", "spec": {"kubeSchedulerConfig": FIT}},
    ],
    ids=["argument", "request", "description", "eksctl", "cluster API"],
)
def test_the_strategy_of_eks_is_that_of_the_default_profile(document: dict[str, Any]) -> None:
    assert strategies(json.dumps(document)) == {"default-scheduler": ("MostAllocated", ["nvidia.com/gpu", "cpu"])}
    assert strategies(yaml.dump(document)) == strategies(document)


def test_eks_without_a_strategy_decides_as_kubernetes_does() -> None:
    assert strategies({"kubeSchedulerConfig": {}}) == {"default-scheduler": DEFAULT}
    assert strategies({"nodeResourcesFit": {"scoringStrategy": {}}}) == {"default-scheduler": DEFAULT}


def test_mistakes_have_their_places_in_the_configuration_of_eks() -> None:
    source = """\
kubeSchedulerConfig:
  nodeResourcesFit:
    scoringStrategy:
      type: RequestedToCapacityRatio
      resources:
      - {name: cpu, weight: 101}
      - {name: memory, wight: 1}
"""
    assert messages(source) == [
        "4: type: EKS accepts LeastAllocated and MostAllocated, got 'RequestedToCapacityRatio'",
        "6: weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        '7: wight: unknown field, did you mean "weight"?',
    ]
    with pytest.raises(ConfigurationError, match="EKS accepts"):
        config.load(source.replace("101", "1").replace("wight", "weight"))
    assert messages("nodeResourcesFit: {scoringStrategy: 1}")
    assert messages("kubeSchedulerConfig: {nodeResourcesFit: {scoringStrategy: {type: 1}}}")


# -- GKE -------------------------------------------------------------------------------------------------------------


def test_the_profile_of_gke_packs_pods_of_both_scheduler_names() -> None:
    optimized = '{"autoscaling": {"autoscalingProfile": "OPTIMIZE_UTILIZATION"}}'
    packing = ("MostAllocated", ["cpu", "memory", "nvidia.com/gpu"])
    names = ("default-scheduler", "gke.io/optimize-utilization-scheduler")
    assert strategies(optimized) == dict.fromkeys(names, packing)
    assert strategies(optimized.replace("OPTIMIZE_UTILIZATION", "BALANCED")) == dict.fromkeys(names, DEFAULT)
    [remark] = remarks_about(optimized)
    assert "not its weights" in remark
    [wrong] = messages("autoscaling:\n  autoscalingProfile: balanced\n")
    assert wrong.startswith("2: autoscalingProfile: expected BALANCED or OPTIMIZE_UTILIZATION")


def test_configurations_of_services_convert_to_what_they_stand_for() -> None:
    for source in (AKS, json.dumps(FIT), "autoscaling: {autoscalingProfile: OPTIMIZE_UTILIZATION}"):
        conversion = legacy.convert(source)
        assert config.load(conversion.data) == config.load(source)
        assert not legacy.is_legacy(source)


def test_other_documents_are_left_as_they_are() -> None:
    own = "kind: KubeSchedulerConfiguration\nkubeSchedulerConfig: {}\n"
    for source in (own, "{}", "a: 1", "autoscaling: 1", "autoscaling: {}", "spec: {kubeSchedulerConfig: 1}", "[1]", ""):
        assert read_document(source).data == yaml.safe_load(source)
