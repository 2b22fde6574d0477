"""Policies: every mistake is one line with its field and line."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from core_tests.descheduling.objects import policy
from kubestow.api.meta import ObjectMeta
from kubestow.descheduling.default_evictor import DefaultEvictorArgs
from kubestow.descheduling.descheduler_policy import load_policy, with_priority_thresholds
from kubestow.descheduling.snapshot import PriorityClass
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import ConfigurationError

REGISTRY = find_plugins()
LOW = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}


def problems(document: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as raised:
        load_policy(document, registry=REGISTRY)
    return raised.value.problems


def test_a_valid_policy_has_the_default_evictor_everywhere() -> None:
    loaded = load_policy(policy("PodLifeTime", {"maxPodLifeTimeSeconds": 60}), registry=REGISTRY)
    (profile,) = loaded.profiles
    assert profile.plugins.filter.enabled == profile.plugins.preevictionfilter.enabled == ("DefaultEvictor",)
    assert {config.name: type(config.args).__name__ for config in profile.plugin_config} == {
        "PodLifeTime": "PodLifeTimeArgs",
        "DefaultEvictor": "DefaultEvictorArgs",
    }


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        (policy("Nope"), "profiles[0].pluginConfig[0].name", "plugin Nope in pluginConfig not registered"),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": "60"}),
            "profiles[0].pluginConfig[0].args.maxPodLifeTimeSeconds",
            'expected an integer (int64), got string "60"',
        ),
        (
            policy("PodLifeTime", {"maxPodLifetimeSeconds": 60}),
            "profiles[0].pluginConfig[0].args.maxPodLifetimeSeconds",
            'unknown field, did you mean "maxPodLifeTimeSeconds"?',
        ),
        (
            policy("LowNodeUtilization", LOW | {"targetThresholds": {"cpu": 101}}, point="balance"),
            "profiles[0].pluginConfig[0].args.targetThresholds.cpu",
            "targetThresholds config is not valid: cpu threshold not in [0, 100] range",
        ),
        (
            policy("LowNodeUtilization", LOW | {"thresholds": {"cpu": 60}}, point="balance"),
            "profiles[0].pluginConfig[0].args.thresholds.cpu",
            "thresholds' cpu percentage is greater than targetThresholds'",
        ),
        (
            policy("LowNodeUtilization", LOW | {"thresholds": {"cpu": float("nan")}}, point="balance"),
            "profiles[0].pluginConfig[0].args.thresholds.cpu",
            "expected a number, got number nan",
        ),
        (
            policy("LowNodeUtilization", LOW | {"numberOfNodes": -1}, point="balance"),
            "profiles[0].pluginConfig[0].args.numberOfNodes",
            "must be 0 or more, got -1",
        ),
        (
            policy("LowNodeUtilization", LOW | {"metricsUtilization": {"source": "Prometheus"}}, point="balance"),
            "profiles[0].pluginConfig[0].args.metricsUtilization.prometheus.query",
            'prometheus query is required when metrics source is set to "Prometheus"',
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, point="balance"),
            "profiles[0].plugins.balance.enabled",
            'profile "main" configures balance extension point of non-existing plugins: PodLifeTime',
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, maxNoOfPodsToEvictTotal=-1),
            "maxNoOfPodsToEvictTotal",
            "must be 0 or more, got -1",
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, nodeSelector="pool in x"),
            "nodeSelector",
            "unable to parse requirement: found 'x' expected: '('",
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, evictor={"nodeSelector": "a b"}),
            "profiles[0].pluginConfig[1].args.nodeSelector",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, evictor={"minPodAge": 5}),
            "profiles[0].pluginConfig[1].args.minPodAge",
            'expected a duration such as "15s", got number 5',
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, evictor={"minPodAge": "-5m"}),
            "profiles[0].pluginConfig[1].args.minPodAge",
            "must be 0 or more, got -5m0s",
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1, "labelSelector": {"matchLabels": "x"}}),
            "profiles[0].pluginConfig[0].args.labelSelector.matchLabels",
            'expected an object, got string "x"',
        ),
        ({"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy"}, "apiVersion", None),
        ([], "", None),
    ],
)
def test_a_mistake_names_its_field(document: Any, field: str, text: str | None) -> None:
    source = document if isinstance(document, dict) else "[]"
    ((path, message),) = problems(source)
    assert path == field
    assert text is None or message == text


def test_all_mistakes_of_a_stage_are_reported_with_their_lines() -> None:
    text = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: main
  pluginConfig:
  - name: RemoveDuplicates
    args: {namespaces: {include: [a], exclude: [b]}}
  - name: RemovePodsHavingTooManyRestarts
    args:
      podRestartThreshold: 0
      states: [Gone]
"""
    assert problems(text) == [
        (
            "profiles[0].pluginConfig[0].args.namespaces",
            "only one of Include/Exclude namespaces can be set (line 7)",
        ),
        (
            "profiles[0].pluginConfig[1].args.podRestartThreshold",
            "invalid PodsHavingTooManyRestarts threshold (line 10)",
        ),
        ("profiles[0].pluginConfig[1].args.states", "states must be one of [CrashLoopBackOff Running] (line 11)"),
    ]


def test_the_mistakes_of_all_stages_are_reported_at_once() -> None:
    text = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
gracePeriodSeconds: -1
profiles:
- name: main
  pluginConfig:
  - name: PodLifeTime
    args: {maxPodLifetime: 60}
  - name: LowNodeUtilization
    args:
      thresholds: {cpu: 120, memory: -1}
      targetThresholds: {cpu: 50}
      numberOfNodes: -1
  plugins:
    balance: {enabled: [LowNodeUtilization, PodLifeTime]}
"""
    arguments = "profiles[0].pluginConfig[1].args"
    assert [path for path, _ in problems(text)] == [
        "profiles[0].pluginConfig[0].args.maxPodLifetime",
        f"{arguments}.thresholds.cpu",
        f"{arguments}.thresholds.memory",
        f"{arguments}.targetThresholds",
        f"{arguments}.thresholds.cpu",
        f"{arguments}.numberOfNodes",
        "gracePeriodSeconds",
        "profiles[0].plugins.balance.enabled",
    ]
    with pytest.raises(ConfigurationError) as staged:
        load_policy(text, registry=REGISTRY, staged=True)
    assert [path for path, _ in staged.value.problems] == ["profiles[0].pluginConfig[0].args.maxPodLifetime"]


def test_a_field_that_resembles_no_other_hides_no_mistake_of_the_same_arguments() -> None:
    args = {"thresholds": {"cpu": 150}, "targetThresholds": {"cpu": 50}, "oops": 1}
    found = [path for path, _ in problems(policy("LowNodeUtilization", args, point="balance"))]
    assert {"profiles[0].pluginConfig[0].args.oops", "profiles[0].pluginConfig[0].args.thresholds.cpu"} <= set(found)


def test_a_plugin_without_arguments_is_refused() -> None:
    document = copy.deepcopy(policy("PodLifeTime"))
    document["profiles"][0]["pluginConfig"] = []
    assert problems(document) == [
        ("profiles[0].plugins.deschedule.enabled[0]", 'unable to find "PodLifeTime" plugin config')
    ]


def test_priority_classes_become_thresholds() -> None:
    args = {"priorityThreshold": {"name": "high"}}
    loaded = load_policy(policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, evictor=args), registry=REGISTRY)
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=1000)
    resolved = with_priority_thresholds(loaded, [high]).profiles[0].plugin_config[1].args
    assert isinstance(resolved, DefaultEvictorArgs)
    assert resolved.priority_threshold is not None
    assert resolved.priority_threshold.value == 1000
    with pytest.raises(ConfigurationError, match="not found"):
        with_priority_thresholds(loaded, [])
    too_high = PriorityClass(metadata=ObjectMeta(name="high"), value=2_000_000_001)
    with pytest.raises(ConfigurationError, match="can't be greater"):
        with_priority_thresholds(loaded, [too_high])
