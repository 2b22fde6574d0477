"""The configuration format: Volcano's own files, mistakes, and the profile that a file becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.cli import main
from kubestow.errors import InputError
from kubestow.framework.profile import build_profile
from kubestow.plugins.configuration_file import read_configuration
from kubestow.plugins.registry import find_plugins
from kubestow.testing import PluginHarness
from kubestow_contrib.volcano.configuration import DEFAULT, ConfigurationProblem
from kubestow_contrib.volcano.configuration import read_configuration as read
from kubestow_contrib.volcano.conversion import check, converted, to_scheduler_configuration

#: As Volcano's Helm chart has it.
HELM_CHART = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
#: As kube-batch's examples have it.
KUBE_BATCH = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments:
      nodeaffinity.weight: "5"
      leastrequested.weight: 0
      mostrequested.weight: 3
"""
CONFIG_MAP = yaml.safe_dump(
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"volcano-scheduler.conf": HELM_CHART}}, default_style="|"
)


@pytest.mark.parametrize("text", [HELM_CHART, KUBE_BATCH, CONFIG_MAP, yaml.safe_dump(dict(DEFAULT))])
def test_files_of_the_originals_run_as_they_are(text: str, tmp_path: Path) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(text)
    registry, harness = find_plugins(), PluginHarness()
    configuration = read_configuration(path, config.FeatureGates(), registry)
    assert [profile.scheduler_name for profile in configuration.profiles] == ["volcano"]
    for profile in configuration.profiles:
        build_profile(profile, registry, harness)


def plugins_of(text: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    profile = to_scheduler_configuration(yaml.safe_load(text))["profiles"][0]
    found: dict[str, dict[str, list[dict[str, Any]]]] = profile["plugins"]
    return found


def scores(text: str) -> dict[str, int]:
    return {each["name"]: each["weight"] for each in plugins_of(text)["score"].get("enabled", [])}


def test_weights_become_those_of_scores() -> None:
    assert scores(HELM_CHART)["VolcanoBinpack"] == 1
    assert scores(HELM_CHART)["TaintToleration"] == 3
    assert scores(KUBE_BATCH) == {
        "NodeResourcesFit": 3,
        "NodeAffinity": 5,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "TaintToleration": 3,
        "ImageLocality": 1,
        "PodTopologySpread": 2,
    }
    assert scores('{actions: "allocate", tiers: [{plugins: [{name: gang}]}]}') == {}
    profile = to_scheduler_configuration(yaml.safe_load(KUBE_BATCH))["profiles"][0]
    args = {each["name"]: each["args"] for each in profile["pluginConfig"]}
    assert args["NodeResourcesFit"]["scoringStrategy"]["type"] == "MostAllocated"


def test_predicates_disable_filters() -> None:
    text = '{actions: "allocate", tiers: [{plugins: [{name: predicates, arguments: %s}]}]}'
    assert "filter" not in plugins_of(text % "{}")
    removed = plugins_of(text % "{predicate.NodePortsEnable: false, predicate.VolumeBindingEnable: false}")
    assert removed["filter"]["disabled"] == [{"name": "NodePorts"}]
    assert removed["multiPoint"]["disabled"] == [{"name": "VolumeBinding"}]
    without = plugins_of('{actions: "allocate", tiers: [{plugins: [{name: gang}]}]}')
    assert {"name": "TaintToleration"} in without["filter"]["disabled"]


def test_actions_and_gang_decide_which_plugins_are_there() -> None:
    assert plugins_of(HELM_CHART)["postFilter"] == {"disabled": [{"name": "DefaultPreemption"}]}
    assert plugins_of(KUBE_BATCH)["postFilter"]["enabled"] == [{"name": "Volcano"}]
    assert plugins_of(KUBE_BATCH)["multiPoint"]["enabled"] == [{"name": "GangScheduling"}]
    assert "multiPoint" not in plugins_of('{actions: "allocate", tiers: [{plugins: [{name: predicates}]}]}')


def tier(*plugins: Any) -> dict[str, Any]:
    return {"tiers": [{"plugins": list(plugins)}]}


def argued(name: str, **arguments: Any) -> dict[str, Any]:
    return tier({"name": name, "arguments": {key.replace("__", "."): value for key, value in arguments.items()}})


@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        ([], "", "expected an object, got a list"),
        ({"action": "allocate"}, "action", 'unknown field, did you mean "actions"?'),
        ({"actions": "enqueue, alocate"}, "actions", 'unknown action "alocate", did you mean "allocate"?'),
        ({"actions": "shuffle"}, "actions", 'action "shuffle" is not supported'),
        ({"actions": ""}, "actions", 'unknown action ""'),
        ({"actions": "allocate, allocate"}, "actions", 'action "allocate" is there twice'),
        ({"actions": ["allocate"]}, "actions", 'expected text such as "enqueue, allocate", got a list'),
        ({"configurations": [{"name": "enqueue"}]}, "configurations", "is not supported"),
        ({"tiers": {}}, "tiers", "expected a list, got an object"),
        ({"tiers": [3]}, "tiers[0]", "expected an object, got 3"),
        ({"tiers": [{"plugin": []}]}, "tiers[0].plugin", 'unknown field, did you mean "plugins"?'),
        ({"tiers": [{}]}, "tiers[0].plugins", "expected a list, got nothing"),
        (tier("gang"), "tiers[0].plugins[0]", 'expected an object, got "gang"'),
        (tier({}), "tiers[0].plugins[0].name", "expected the name of a plugin, got nothing"),
        (tier({"name": "gnag"}), "tiers[0].plugins[0].name", 'unknown plugin "gnag", did you mean "gang"?'),
        (tier({"name": "tdm"}), "tiers[0].plugins[0].name", 'plugin "tdm" is not supported'),
        (
            tier({"name": "numaaware"}),
            "tiers[0].plugins[0].name",
            'plugin "numaaware" is not supported; nearest: NodeResourceTopologyMatch',
        ),
        (tier({"name": "drf"}, {"name": "drf"}), "tiers[0].plugins[1].name", "plugin drf is there twice"),
        (
            tier({"name": "drf", "enabledJobOrder": True}),
            "tiers[0].plugins[0].enabledJobOrder",
            'unknown field, did you mean "enableJobOrder"?',
        ),
        (
            tier({"name": "drf", "enableJobOrder": "no"}),
            "tiers[0].plugins[0].enableJobOrder",
            'expected true or false, got "no"',
        ),
        (
            tier({"name": "drf", "enableHierarchy": True}),
            "tiers[0].plugins[0].enableHierarchy",
            "hierarchical DRF is not supported",
        ),
        (
            argued("binpack", binpack__wieght=1),
            "tiers[0].plugins[0].arguments.binpack.wieght",
            'plugin binpack has no such argument, did you mean "binpack.weight"?',
        ),
        (
            argued("binpack", binpack__weight="heavy"),
            "tiers[0].plugins[0].arguments.binpack.weight",
            'expected a number, got "heavy"',
        ),
        (
            argued("binpack", binpack__cpu=-1),
            "tiers[0].plugins[0].arguments.binpack.cpu",
            "is -1, expected a whole number from 0 to 1000",
        ),
        (
            argued("binpack", binpack__resources=[]),
            "tiers[0].plugins[0].arguments.binpack.resources",
            "expected names separated by commas, got a list",
        ),
        (
            argued("capacity", ancestorReclaimLevel=-1),
            "tiers[0].plugins[0].arguments.ancestorReclaimLevel",
            "is -1, expected a whole number of at least 0",
        ),
        (
            argued("overcommit", **{"overcommit-factor": 0.5}),
            "tiers[0].plugins[0].arguments.overcommit-factor",
            "is 0.5, expected at least 1",
        ),
        (
            argued("overcommit", **{"overcommit-factor": "nan"}),
            "tiers[0].plugins[0].arguments.overcommit-factor",
            'expected a number, got "nan"',
        ),
        (
            argued("predicates", predicate__NodePortsEnable=1),
            "tiers[0].plugins[0].arguments.predicate.NodePortsEnable",
            "expected true or false, got 1",
        ),
        (
            argued("nodeorder", mostrequested__weight=1),
            "tiers[0].plugins[0].arguments.mostrequested.weight",
            "cannot be combined with leastrequested.weight, which is 1 unless set to 0",
        ),
    ],
)
def test_mistakes(data: Any, path: str, problem: str) -> None:
    with pytest.raises(ConfigurationProblem) as raised:
        read(data)
    assert (raised.value.path, raised.value.problem) == (path, problem)


def test_a_mistake_in_a_file_is_one_line_with_its_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(HELM_CHART.replace("name: drf", "name: drff"))
    expected = f'{path}:11:5: tiers[1].plugins[1].name: unknown plugin "drff", did you mean "drf"?'
    with pytest.raises(InputError) as raised:
        read_configuration(path, config.FeatureGates(), find_plugins())
    assert str(raised.value) == expected
    with pytest.raises(SystemExit) as exited:
        main(["config", "convert", str(path)])
    assert exited.value.code
    assert capsys.readouterr().err.strip().endswith(expected)


def test_a_mistake_in_args_names_the_field() -> None:
    document = to_scheduler_configuration(yaml.safe_load(HELM_CHART))
    document["profiles"][0]["pluginConfig"][0]["args"]["actions"] = "alocate"
    registry, harness = find_plugins(), PluginHarness()
    configuration = read_configuration(document, config.FeatureGates(), registry)
    with pytest.raises(InputError, match=r'^plugin Volcano: args\.actions: unknown action "alocate"'):
        build_profile(configuration.profiles[0], registry, harness)


def test_convert_prints_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(HELM_CHART)
    with pytest.raises(SystemExit):
        main(["config", "convert", str(path)])
    assert yaml.safe_load(capsys.readouterr().out) == converted(HELM_CHART.encode(), "file")


@pytest.mark.parametrize("text", ["kind: KubeSchedulerConfiguration\nactions: x", "a: [", "[]", "metadata: {}"])
def test_other_files_are_no_configuration_of_volcano(text: str) -> None:
    assert converted(text.encode(), "file") is None


def test_all_plugins_that_are_not_there_are_reported_at_once() -> None:
    found = check(yaml.safe_dump(tier({"name": "tdm"}, {"name": "gnag"}, {"name": "usage"})).encode())
    assert found is not None
    assert [error.message for error in found] == [
        'plugin "tdm" is not supported',
        'plugin "usage" is not supported; nearest: TargetLoadPacking and LoadAwareScheduling',
    ]
