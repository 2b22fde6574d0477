"""All independent mistakes of a configuration in one pass, with their positions."""

from __future__ import annotations

import contextlib
import json
import textwrap
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.config.builders import IN_TREE, v1
from core_tests.config.recorded import CASES
from kubestow import config
from kubestow.config import legacy
from kubestow.errors import ConfigurationError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

MISTAKES = f"""{HEAD}parallelism: many
podInitialBackoffSeconds: 0
paralelism: 4
profiles:
- schedulerName: a
  percentageOfNodesToScore: 101
  plugins:
    score:
      enabled:
      - name: ImageLocality
      - name: Mine
  pluginConfig:
  - name: InterPodAffinity
    args: {{hardPodAffinityWeight: 101}}
- schedulerName: a
  pluginConfig:
  - name: NodeResourcesFit
    args:
      kind: PodTopologySpreadArgs
parallelism: 1
"""


def diagnosed(source: config.Source) -> list[str]:
    """The errors as "line:column path"."""
    errors = config.diagnose(source, implements=IN_TREE)
    return [f"{error.line}:{error.column} {error.path}" for error in errors]


def test_mistakes_of_all_stages_are_reported_at_once() -> None:
    text = MISTAKES.removesuffix("parallelism: 1\n")
    assert diagnosed(text) == [
        "3:1 parallelism",
        "4:1 podInitialBackoffSeconds",
        "5:1 paralelism",
        "8:3 profiles[0].percentageOfNodesToScore",
        "13:9 profiles[0].plugins.score.enabled[1]",
        "16:12 profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
        "17:3 profiles[1].schedulerName",
        "20:5 profiles[1].pluginConfig[0].args",
    ]


def test_each_mistake_in_the_arguments_of_a_plugin_has_its_position() -> None:
    text = f"""{HEAD}profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [cpu!]
      scoringStrategy:
        type: Most
        resources:
        - name: cpu
          weight: 1000
"""
    assert diagnosed(text) == [
        "7:26 profiles[0].pluginConfig[0].args.ignoredResources[0]",
        "9:9 profiles[0].pluginConfig[0].args.scoringStrategy.type",
        "12:11 profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight",
    ]


def test_a_duplicate_field_hides_no_other_mistake() -> None:
    assert "22:1 parallelism" in diagnosed(MISTAKES)
    assert "13:9 profiles[0].plugins.score.enabled[1]" in diagnosed(MISTAKES)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"leaderElection": {"renewDeadline": 5, "leaseDuration": "1s"}}, ["leaderElection.renewDeadline"]),
        ({"profiles": [{"schedulerName": 1}, {"schedulerName": "b"}]}, ["profiles[0].schedulerName"]),
        ({"profiles": [{"schedulerName": "a"}, {"schedulrName": "b"}]}, ["profiles[1].schedulrName"]),
        ({"profiles": [7, {"schedulerName": "b", "percentageOfNodesToScore": 200}, {"schedulerName": "a"}]},
         ["profiles[0]", "profiles[1].percentageOfNodesToScore"]),
        ({"profiles": [{"plugins": {"filter": {"enabled": [{"name": "EBSLimits"}]}}}]},
         ["profiles[0].plugins.filter.enabled[0]"]),
        ({"profiles": [{"plugins": {"filter": {"enabled": [{"name": 5}]}}}]},
         ["profiles[0].plugins.filter.enabled[0].name"]),
        ({"extenders": [{"prioritizeVerb": "p", "weight": "1"}]}, ["extenders[0].weight"]),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[0],
)  # fmt: skip
def test_a_consequence_of_a_mistake_is_not_reported(fields: dict[str, Any], expected: list[str]) -> None:
    errors = config.diagnose(v1(**fields), implements=IN_TREE)
    assert sorted(error.path for error in errors) == sorted(expected)


def test_a_missing_type_hides_no_mistake_in_the_fields() -> None:
    errors = config.diagnose({"parallelism": 0})
    assert [error.message.partition(",")[0] for error in errors] == [
        "Object 'Kind' is missing",
        "Object 'apiVersion' is missing",
        "Invalid value: 0: should be an integer value greater than zero",
    ]


def test_a_version_that_has_to_be_converted_is_one_error() -> None:
    legacy = {**v1(parallelism=0), "apiVersion": "kubescheduler.config.k8s.io/v1beta3"}
    assert len(config.diagnose(legacy)) == 1


def test_a_config_map_without_a_configuration_is_an_error_at_its_data() -> None:
    assert diagnosed("kind: ConfigMap\ndata:\n  a: x\n  b: y\n") == ["2:1 data"]


def test_an_object_of_another_kind_is_one_error() -> None:
    assert len(config.diagnose("apiVersion: v1\nkind: Pod\nspec: {}\n")) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_errors_of_kube_scheduler_are_among_the_diagnosed(case: dict[str, Any]) -> None:
    gates = config.FeatureGates(case.get("featureGates"))
    reported = config.check(case["config"], gates=gates, implements=IN_TREE)
    diagnosed = config.diagnose(case["config"], gates=gates, implements=IN_TREE)
    assert bool(reported) == bool(diagnosed)
    for error in reported:  # one for all arguments of a plugin is diagnosed as one for each
        assert any(found.message in error.message for found in diagnosed), error.message


@pytest.mark.parametrize("indent", [None, 2, "\t"], ids=["one line", "spaces", "tabs"])
def test_mistakes_in_json_have_positions(indent: int | str | None) -> None:
    text = json.dumps(v1(parallelism=0, profiles=[{"percentageOfNodesToScore": 101}]), indent=indent)
    for error in config.diagnose(text):
        assert error.line and error.column
        line = text.splitlines()[error.line - 1]
        assert line[error.column - 1 :].startswith(f'"{error.path.rpartition(".")[2]}"')


def test_a_configuration_in_a_config_map_is_loaded() -> None:
    wrapped = f"kind: ConfigMap\napiVersion: v1\ndata:\n  config.yaml: |\n{textwrap.indent(HEAD, '    ')}"
    assert config.load(wrapped) == config.default_configuration()
    assert config.diagnose(wrapped) == []


def test_a_mistake_in_a_config_map_has_its_position_in_the_file() -> None:
    body = textwrap.indent(f"{HEAD}\nparallelism: 0\n", "    ")
    wrapped = f"kind: ConfigMap\napiVersion: v1\ndata:\n  config.yaml: |\n{body}"
    assert diagnosed(wrapped) == ["8:5 parallelism"]
    assert wrapped.splitlines()[7][4:] == "parallelism: 0"
    (broken,) = config.diagnose(wrapped.replace("0\n", "[\n"))
    assert broken.line == 9


def test_a_mistake_in_a_quoted_value_of_a_config_map_has_the_position_of_the_value() -> None:
    wrapped = f"kind: ConfigMap\ndata:\n  config.yaml: {json.dumps(f'{HEAD}parallelism: 0')}\n"
    assert diagnosed(wrapped) == ["3:3 parallelism"]


_VERSIONS = [
    f"kubescheduler.config.k8s.io/{name}" for name in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
]
_WRONG = [None, 0, -1, "x", [], {}, True, 1e30, ["a"], {"a": 1}, [None], [5]]


def _fields(data: Any) -> list[tuple[Any, Any]]:
    """Every container in the data with each of its keys or indices."""
    here = [(data, key) for key in (data if isinstance(data, dict) else range(len(data)))]
    inner = [data[key] for _, key in here if isinstance(data[key], dict | list)]
    return here + [field for container in inner for field in _fields(container)]


@given(st.sampled_from([case["config"] for case in CASES]), st.randoms(use_true_random=False))
def test_configurations_with_mistakes_are_diagnosed_in_every_version(recorded: Any, random: Random) -> None:
    data = json.loads(json.dumps(recorded))
    for _ in range(random.randint(1, 3)):
        container, key = random.choice(_fields(data))
        container[key] = random.choice(_WRONG)
    reported = config.check(data, implements=IN_TREE)
    diagnosed = config.diagnose(data, implements=IN_TREE)
    assert bool(reported) == bool(diagnosed)
    assert {error.message for error in reported} <= {error.message for error in diagnosed}
    with contextlib.suppress(ConfigurationError):  # any other exception is a bug
        legacy.convert({**data, "apiVersion": random.choice(_VERSIONS)})
