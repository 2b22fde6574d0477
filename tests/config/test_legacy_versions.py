"""v1beta2 and v1beta3 configurations become v1 ones that mean the same."""

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
    """What a configuration is converted to, made sure that a scheduler can be built of it."""
    data = legacy.convert(source).data
    assert config.check(data, implements=IN_TREE) == []
    return data


def remarks(source: config.Source) -> list[str]:
    return [str(remark) for remark in legacy.convert(source).remarks]


def test_v1beta3_changes_its_version_alone() -> None:
    plugins = {"score": {"enabled": [{"name": "NodeAffinity", "weight": 5}]}}
    given = beta(3, parallelism=8, profiles=[{"schedulerName": "mine", "plugins": plugins}])
    assert converted(given) == {**given, "apiVersion": f"{GROUP}/v1"}
    assert remarks(given) == []


def test_the_default_weights_of_v1beta2_are_kept() -> None:
    (only,) = converted(beta(2))["profiles"]
    assert only["plugins"]["score"]["enabled"] == [
        {"name": "InterPodAffinity", "weight": 1},
        {"name": "NodeAffinity", "weight": 1},
        {"name": "TaintToleration", "weight": 1},
    ]
    assert "the default weights of v1beta2 are written out" in remarks(beta(2))[0]


def test_a_score_that_v1beta2_set_or_took_away_is_left_alone() -> None:
    given = beta(2, profiles=[profile(score=enabled(disabled=("TaintToleration",), NodeAffinity=5))])
    (only,) = converted(given)["profiles"]
    assert only["plugins"]["score"] == {
        "enabled": [{"name": "NodeAffinity", "weight": 5}, {"name": "InterPodAffinity", "weight": 1}],
        "disabled": [{"name": "TaintToleration"}],
    }


def test_scores_of_v1beta2_that_were_all_taken_away_stay_away() -> None:
    (only,) = converted(beta(2, profiles=[profile(score=disabled("*"))]))["profiles"]
    assert only["plugins"]["score"] == {"disabled": [{"name": "*"}]}


@pytest.mark.parametrize("gone", ["SelectorSpread", "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"])
def test_plugins_that_are_gone_are_left_out_and_named(gone: str) -> None:
    given = beta(3, profiles=[profile(filter=disabled(gone), score=enabled(gone, "ImageLocality"), args={gone: {}})])
    (only,) = converted(given)["profiles"]
    assert only["plugins"] == {"score": {"enabled": [{"name": "ImageLocality"}]}}
    assert only["pluginConfig"] == []
    assert [remark.partition(" is gone")[0] for remark in remarks(given)] == [
        f"profiles[0].plugins.filter.disabled[0]: {gone}",
        f"profiles[0].plugins.score.enabled[0]: {gone}",
        f"profiles[0].pluginConfig[0]: {gone}",
    ]


def test_arguments_change_their_version_too() -> None:
    args = {"apiVersion": f"{GROUP}/v1beta3", "kind": "InterPodAffinityArgs", "hardPodAffinityWeight": 3}
    (only,) = converted(beta(3, profiles=[profile(args={"InterPodAffinity": args})]))["profiles"]
    assert only["pluginConfig"][0]["args"] == {**args, "apiVersion": f"{GROUP}/v1"}


def test_addresses_of_the_insecure_port_are_left_out() -> None:
    given = beta(2, healthzBindAddress="0.0.0.0:10251", metricsBindAddress="")
    assert {"healthzBindAddress", "metricsBindAddress"}.isdisjoint(converted(given))
    assert remarks(given)[0].startswith("healthzBindAddress: removed")


def test_a_lock_that_was_on_its_way_to_leases_arrives() -> None:
    given = beta(3, leaderElection={"leaderElect": True, "resourceLock": "endpointsleases"})
    assert converted(given)["leaderElection"]["resourceLock"] == "leases"
    assert remarks(given)[0].startswith("leaderElection.resourceLock: endpointsleases is now leases")


def test_v1_passes_through() -> None:
    given = {**beta(3), "apiVersion": f"{GROUP}/v1"}
    assert legacy.convert(given) == (given, ())


def test_remarks_know_their_lines() -> None:
    text = f"apiVersion: {GROUP}/v1beta2\nkind: KubeSchedulerConfiguration\nprofiles: [{{}}]\nhealthzBindAddress: ''\n"
    assert [remark.line for remark in legacy.convert(text).remarks] == [4, 3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "not YAML"),
        ("kind: Pod\napiVersion: v1\n", "got v1 Pod"),
        (f"apiVersion: {GROUP}/v1beta1\nkind: KubeSchedulerConfiguration\n", "expected a KubeSchedulerConfiguration"),
        (f"apiVersion: {GROUP}/v1beta3\nkind: KubeSchedulerConfiguration\nparallelism: 1\nparallelism: 2\n", "line 4"),
        ("kind: ConfigMap\ndata: {a: '', b: ''}\n", "policy.cfg"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match="configuration: ") as refused:
        legacy.convert(text)
    assert told in str(refused.value)
