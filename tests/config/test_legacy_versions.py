"""Conversion of v1beta2 and v1beta3 configurations to v1."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow import config
from kubestow.config import legacy
from kubestow.errors import ConfigurationError
from tests.config.builders import IN_TREE, disabled, enabled, profile

GROUP = "kubescheduler.config.k8s.io"


def beta(number: int, **fields: Any) -> dict[str, Any]:
    """A configuration object of v1beta2 or v1beta3."""
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
        (f"apiVersion: {GROUP}/v1beta1\nkind: KubeSchedulerConfiguration\n", "expected a KubeSchedulerConfiguration"),
        (f"apiVersion: {GROUP}/v1beta3\nkind: KubeSchedulerConfiguration\nparallelism: 1\nparallelism: 2\n", "line 4"),
        ("kind: ConfigMap\ndata: {a: '', b: ''}\n", "policy.cfg"),
    ],
)
def test_an_unconvertible_object_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match="configuration: ") as raised:
        legacy.convert(text)
    assert expected in str(raised.value)
