"""Conversion of v1beta1, v1beta2 and v1beta3 configurations to v1."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import IN_TREE, disabled, enabled, profile
from kubestow import config
from kubestow.config import legacy
from kubestow.errors import ConfigurationError

GROUP = "kubescheduler.config.k8s.io"


def beta(number: int, **fields: Any) -> dict[str, Any]:
    """A configuration object of v1beta1, v1beta2 or v1beta3."""
    return {"apiVersion": f"{GROUP}/v1beta{number}", "kind": "KubeSchedulerConfiguration", **fields}


def converted(source: config.Source) -> dict[str, Any]:
    """The converted data; asserts that a scheduler can be built from it."""
    data = legacy.convert(source).data
    assert config.check(data, implements=IN_TREE) == []
    return data


def warnings(source: config.Source) -> list[str]:
    return [str(warning) for warning in legacy.convert(source).warnings]


def test_v1beta3_changes_only_its_version() -> None:
    plugins = {"score": {"enabled": [{"name": "NodeAffinity", "weight": 5}]}}
    given = beta(3, parallelism=8, profiles=[{"schedulerName": "mine", "plugins": plugins}])
    assert converted(given) == {**given, "apiVersion": f"{GROUP}/v1"}
    assert warnings(given) == []


def test_a_profile_without_plugins_stays_one_without_plugins() -> None:
    profiles: list[dict[str, Any]] = [{"schedulerName": "mine"}, {"schedulerName": "other", "plugins": {}}]
    assert converted(beta(3, profiles=profiles))["profiles"] == profiles


def test_the_default_weights_of_v1beta2_are_kept() -> None:
    (only,) = converted(beta(2))["profiles"]
    assert only["plugins"]["score"]["enabled"] == [
        {"name": "InterPodAffinity", "weight": 1},
        {"name": "NodeAffinity", "weight": 1},
        {"name": "TaintToleration", "weight": 1},
    ]
    assert "the default weights of v1beta2 are set explicitly" in warnings(beta(2))[0]


def test_a_score_plugin_configured_in_v1beta2_is_unchanged() -> None:
    given = beta(2, profiles=[profile(score=enabled(disabled=("TaintToleration",), NodeAffinity=5))])
    (only,) = converted(given)["profiles"]
    assert only["plugins"]["score"] == {
        "enabled": [{"name": "NodeAffinity", "weight": 5}, {"name": "InterPodAffinity", "weight": 1}],
        "disabled": [{"name": "TaintToleration"}],
    }


def test_score_plugins_disabled_with_a_star_in_v1beta2_stay_disabled() -> None:
    (only,) = converted(beta(2, profiles=[profile(score=disabled("*"))]))["profiles"]
    assert only["plugins"]["score"] == {"disabled": [{"name": "*"}]}


@pytest.mark.parametrize("removed", ["SelectorSpread", "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"])
def test_removed_plugins_are_omitted_with_a_warning(removed: str) -> None:
    given = beta(
        3, profiles=[profile(filter=disabled(removed), score=enabled(removed, "ImageLocality"), args={removed: {}})]
    )
    (only,) = converted(given)["profiles"]
    assert only["plugins"] == {"score": {"enabled": [{"name": "ImageLocality"}]}}
    assert only["pluginConfig"] == []
    assert [warning.partition(" is removed")[0] for warning in warnings(given)] == [
        f"profiles[0].plugins.filter.disabled[0]: {removed}",
        f"profiles[0].plugins.score.enabled[0]: {removed}",
        f"profiles[0].pluginConfig[0]: {removed}",
    ]


def test_the_version_of_arguments_is_converted() -> None:
    args = {"apiVersion": f"{GROUP}/v1beta3", "kind": "InterPodAffinityArgs", "hardPodAffinityWeight": 3}
    (only,) = converted(beta(3, profiles=[profile(args={"InterPodAffinity": args})]))["profiles"]
    assert only["pluginConfig"][0]["args"] == {**args, "apiVersion": f"{GROUP}/v1"}


def test_insecure_serving_addresses_are_omitted() -> None:
    given = beta(2, healthzBindAddress="0.0.0.0:10251", metricsBindAddress="")
    assert {"healthzBindAddress", "metricsBindAddress"}.isdisjoint(converted(given))
    assert warnings(given)[0].startswith("healthzBindAddress: removed")


def test_a_migration_lock_becomes_a_lease_lock() -> None:
    given = beta(3, leaderElection={"leaderElect": True, "resourceLock": "endpointsleases"})
    assert converted(given)["leaderElection"]["resourceLock"] == "leases"
    assert warnings(given)[0].startswith("leaderElection.resourceLock: endpointsleases is replaced by leases")


def test_v1_is_unchanged() -> None:
    given = {**beta(3), "apiVersion": f"{GROUP}/v1"}
    assert legacy.convert(given) == (given, ())


def test_warnings_have_line_numbers() -> None:
    text = f"apiVersion: {GROUP}/v1beta2\nkind: KubeSchedulerConfiguration\nprofiles: [{{}}]\nhealthzBindAddress: ''\n"
    assert [warning.line for warning in legacy.convert(text).warnings] == [4, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[", "invalid YAML"),
        ("kind: Pod\napiVersion: v1\n", "got v1 Pod"),
        (f"apiVersion: {GROUP}/v2\nkind: KubeSchedulerConfiguration\n", "expected a KubeSchedulerConfiguration"),
        (f"apiVersion: {GROUP}/v1beta3\nkind: KubeSchedulerConfiguration\nparallelism: 1\nparallelism: 2\n", "line 4"),
        ("kind: ConfigMap\ndata: {a: '', b: ''}\n", "policy.cfg"),
    ],
)
def test_an_unconvertible_object_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match="configuration: ") as raised:
        legacy.convert(text)
    assert expected in str(raised.value)


@pytest.mark.parametrize("given", ["", 0, False], ids=repr)
@pytest.mark.parametrize(
    "field",
    [
        "profiles",
        "profiles[0].plugins",
        "profiles[0].plugins.score",
        "profiles[0].plugins.score.enabled",
        "profiles[0].pluginConfig",
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_an_empty_value_of_another_type_is_kept_for_the_decoder_to_report(version: int, field: str, given: Any) -> None:
    *parents, name = field.split(".")
    value: Any = {name: given}
    for parent in reversed(parents):
        key, is_item, _ = parent.partition("[")
        value = {key: [value] if is_item else value}
    errors = config.check(legacy.convert(beta(version, **value)).data)
    assert [error.path for error in errors] == [field]


# Scoring strategies as plugins, until v1beta1 ------------------------------------------------------------------------


def beta1(score: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    """A v1beta1 configuration with one plugin set for Score and plugin arguments."""
    sets: dict[str, Any] = {"score": score} if score else {}
    return beta(1, profiles=[profile("default-scheduler", args=args, **sets)])


def fit(source: dict[str, Any]) -> tuple[dict[str, int], Any]:
    """The weight of NodeResourcesFit at Score and its strategy, as a scheduler would use them."""
    (only,) = config.load(converted(source)).profiles
    points = config.expand(only, IN_TREE)[config.ExtensionPoint.SCORE]
    weights = {plugin.name: plugin.weight for plugin in points if plugin.name == "NodeResourcesFit"}
    return weights, config.render(config.load(converted(source)))["profiles"][0]["pluginConfig"]


def strategy(source: dict[str, Any]) -> Any:
    (args,) = [c["args"] for c in fit(source)[1] if c["name"] == "NodeResourcesFit"]
    return args["scoringStrategy"]


def test_v1beta1_without_score_plugins_scores_by_least_allocated() -> None:
    assert fit(beta1())[0] == {"NodeResourcesFit": 1}
    assert strategy(beta1())["type"] == "LeastAllocated"


def test_a_strategy_plugin_becomes_a_strategy_with_its_weight_and_arguments() -> None:
    given = beta1(
        enabled(disabled=("NodeResourcesLeastAllocated",), NodeResourcesMostAllocated=5),
        NodeResourcesMostAllocated={"resources": [{"name": "cpu", "weight": 3}]},
    )
    assert fit(given)[0] == {"NodeResourcesFit": 5}
    assert strategy(given) == {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}


def test_a_strategy_keeps_the_other_arguments_of_node_resources_fit() -> None:
    given = beta1(
        enabled("NodeResourcesMostAllocated", disabled=("NodeResourcesLeastAllocated",)),
        NodeResourcesFit={"ignoredResources": ["example.com/a"]},
    )
    (args,) = [each["args"] for each in fit(given)[1] if each["name"] == "NodeResourcesFit"]
    assert args["ignoredResources"] == ["example.com/a"]
    assert args["scoringStrategy"]["type"] == "MostAllocated"


def test_the_ratio_plugin_becomes_a_strategy_with_its_shape() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    given = beta1(enabled("RequestedToCapacityRatio", disabled=("*",)), RequestedToCapacityRatio={"shape": shape})
    assert fit(given)[0] == {"NodeResourcesFit": 1}
    assert strategy(given)["requestedToCapacityRatio"]["shape"] == shape


def test_disabling_the_default_strategy_disables_the_score_of_node_resources_fit() -> None:
    assert fit(beta1(disabled("NodeResourcesLeastAllocated")))[0] == {}
    assert fit(beta1(disabled("*")))[0] == {}


def test_opposite_strategies_cancel_out() -> None:
    given = beta1(enabled(NodeResourcesMostAllocated=3))
    assert fit(given)[0] == {"NodeResourcesFit": 2}
    assert "NodeResourcesLeastAllocated (1) and NodeResourcesMostAllocated (3) cancel each other out" in (
        " ".join(warnings(given))
    )


def test_two_strategies_are_an_error_that_says_what_to_disable() -> None:
    with pytest.raises(ConfigurationError, match="disable NodeResourcesLeastAllocated"):
        legacy.convert(beta1(enabled("RequestedToCapacityRatio")))


def test_default_constraints_of_v1beta1_imply_a_list() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    (only,) = converted(beta1(PodTopologySpread={"defaultConstraints": [constraint]}))["profiles"]
    assert only["pluginConfig"][0]["args"]["defaultingType"] == "List"


@pytest.mark.parametrize("name", ["NodeLabel", "ServiceAffinity", "NodeResourceLimits"])
def test_a_plugin_whose_effect_would_be_lost_is_an_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is no longer supported: ") as raised:
        legacy.convert(beta1(enabled(name)))
    assert raised.value.problems[0][0] == "profiles[0].plugins.score.enabled[0]"
    assert converted(beta1(disabled(name)))
