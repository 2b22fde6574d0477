"""Conversion of v1alpha1 and v1alpha2 configurations, and of the algorithm they name, to v1."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import IN_TREE, disabled, enabled, profile
from kubestow import config
from kubestow.config import legacy
from kubestow.errors import ConfigurationError

GROUP = "kubescheduler.config.k8s.io"
POLICY = b"kind: Policy\npredicates: [{name: HostName}]\npriorities: [{name: ImageLocalityPriority, weight: 7}]\n"


def alpha(version: int = 1, **fields: Any) -> dict[str, Any]:
    """A configuration object of v1alpha1 or v1alpha2."""
    return {"apiVersion": f"{GROUP}/v1alpha{version}", "kind": "KubeSchedulerConfiguration", **fields}


def loaded(source: config.Source, files: dict[str, bytes] | None = None) -> config.KubeSchedulerConfiguration:
    """The converted configuration; asserts that a scheduler can be built from it."""
    data = legacy.convert(source, read_file=(files or {}).__getitem__).data
    assert config.diagnose(data, implements=IN_TREE) == []
    return config.load(data, implements=IN_TREE)


def plugins(configuration: config.KubeSchedulerConfiguration, point: str) -> list[tuple[str, int]]:
    """The plugins of the only profile at an extension point, with weights."""
    (only,) = configuration.profiles
    return [(plugin.name, plugin.weight) for plugin in config.expand(only, IN_TREE)[config.ExtensionPoint(point)]]


@pytest.mark.parametrize("version", ["componentconfig/v1alpha1", f"{GROUP}/v1alpha1", f"{GROUP}/v1alpha2"])
def test_an_empty_configuration_has_the_default_plugins_with_their_weights_then(version: str) -> None:
    scores = dict(plugins(loaded({**alpha(), "apiVersion": version}), "score"))
    assert (scores["TaintToleration"], scores["NodeAffinity"], scores["InterPodAffinity"]) == (1, 1, 1)
    assert scores["NodeResourcesFit"] == 1


def test_the_fields_of_the_only_profile_are_moved_into_it() -> None:
    given = alpha(
        schedulerName="mine",
        algorithmSource={"provider": "DefaultProvider"},
        hardPodAffinitySymmetricWeight=7,
        bindTimeoutSeconds=30,
        disablePreemption=True,
        percentageOfNodesToScore=20,
        leaderElection={"lockObjectNamespace": "here", "lockObjectName": "lock"},
        failureDomains="a,b",
    )
    converted = loaded(given)
    (only,) = converted.profiles
    assert only.scheduler_name == "mine"
    assert only.args["InterPodAffinity"].hard_pod_affinity_weight == 7
    assert only.args["VolumeBinding"].bind_timeout_seconds == 30
    assert [name for name, _ in plugins(converted, "postFilter")] == ["DynamicResources"]
    assert converted.percentage_of_nodes_to_score == 20
    assert (converted.leader_election.resource_namespace, converted.leader_election.resource_name) == ("here", "lock")


def test_the_cluster_autoscaler_provider_packs_nodes() -> None:
    (only,) = loaded(alpha(algorithmSource={"provider": "ClusterAutoscalerProvider"})).profiles
    assert only.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"


def test_the_policy_of_a_file_is_converted() -> None:
    given = alpha(schedulerName="mine", algorithmSource={"policy": {"file": {"path": "/etc/policy.cfg"}}})
    converted = loaded(given, {"/etc/policy.cfg": POLICY})
    assert plugins(converted, "score") == [("ImageLocality", 7), ("DynamicResources", 2)]
    assert "NodeName" in dict(plugins(converted, "filter"))
    assert "NodeResourcesFit" not in dict(plugins(converted, "filter"))
    assert converted.profiles[0].scheduler_name == "mine"


def test_the_plugins_of_a_profile_come_after_those_of_its_policy() -> None:
    given = alpha(
        algorithmSource={"policy": {"file": {"path": "p.cfg"}}},
        plugins={"score": enabled(NodeAffinity=3), "filter": disabled("NodeName")},
    )
    converted = loaded(given, {"p.cfg": POLICY})
    assert plugins(converted, "score") == [("ImageLocality", 7), ("DynamicResources", 2), ("NodeAffinity", 3)]


def test_a_plugin_set_that_is_none_is_an_error_beside_a_policy_too() -> None:
    given = alpha(algorithmSource={"policy": {"file": {"path": "p.cfg"}}}, plugins={"score": 5})
    errors = config.diagnose(legacy.convert(given, read_file={"p.cfg": POLICY}.__getitem__).data)
    assert [error.path for error in errors] == ["profiles[0].plugins.score"]


@pytest.mark.parametrize("text", [b"[]", b"5", b""])
def test_a_file_that_holds_no_policy_is_an_error_that_names_it(text: bytes) -> None:
    given = alpha(algorithmSource={"policy": {"file": {"path": "p.cfg"}}})
    with pytest.raises(ConfigurationError, match=r"p\.cfg: expected a Policy"):
        loaded(given, {"p.cfg": text})


def test_an_error_in_the_policy_names_its_file() -> None:
    given = alpha(algorithmSource={"policy": {"file": {"path": "p.cfg"}}})
    with pytest.raises(
        ConfigurationError, match=r"p\.cfg: predicates\[0\]: predicate type not found for .* \(line 1\)"
    ):
        loaded(given, {"p.cfg": b"predicates: [{name: Fancy}]"})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            {"policy": {"configMap": {"namespace": "ns", "name": "policy"}}},
            "kubectl get configmap policy --namespace ns",
        ),
        ({"policy": {"file": {"path": "/p"}}}, "convert /p with kubestow config convert"),
        ({"provider": "Mine"}, "expected DefaultProvider or ClusterAutoscalerProvider"),
        ({"policy": {}}, "expected file.path or configMap.name"),
        (5, "expected an object with provider or policy"),
    ],
    ids=str,
)
def test_an_algorithm_that_cannot_be_converted_is_one_line_that_says_what_to_do(source: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        legacy.convert(alpha(algorithmSource=source))
    ((path, text),) = raised.value.problems
    assert path.startswith("algorithmSource")
    assert expected in text


def test_extension_points_of_v1alpha1_are_renamed() -> None:
    given = alpha(plugins={"unreserve": enabled("VolumeBinding"), "postFilter": disabled("TaintToleration")})
    converted = loaded(given)
    assert "TaintToleration" not in dict(plugins(converted, "preScore"))
    assert "DefaultPreemption" in dict(plugins(converted, "postFilter"))


def test_profiles_of_v1alpha2_keep_their_plugins() -> None:
    sets = {"unreserve": enabled("DynamicResources"), "score": enabled(ImageLocality=4)}
    given = alpha(2, bindTimeoutSeconds=9, profiles=[profile("a", args={"VolumeBinding": {}}, **sets)])
    converted = loaded(given)
    assert dict(plugins(converted, "score"))["ImageLocality"] == 4
    assert converted.profiles[0].args["VolumeBinding"].bind_timeout_seconds == 9


@pytest.mark.parametrize("field", ["profiles", "plugins", "pluginConfig", "leaderElection"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_value_of_another_type_is_an_error_of_the_decoder(version: int, field: str) -> None:
    data = legacy.convert(alpha(version, **{field: "x"})).data
    assert config.diagnose(data, implements=IN_TREE)


def test_a_warning_has_the_position_of_its_field() -> None:
    text = f"apiVersion: {GROUP}/v1alpha1\nkind: KubeSchedulerConfiguration\nplugins:\n  score:\n    enabled:\n"
    text += "    - name: NodePreferAvoidPods\n"
    removed = [warning for warning in legacy.convert(text).warnings if "removed" in warning.message]
    assert [(warning.line, warning.column) for warning in removed] == [(6, 7)]
