"""The diff between a configuration and the default one, as YAML comments."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from core_tests.config.builders import disabled, enabled, profile, v1
from core_tests.config.recorded import CASES
from kubestow import config
from kubestow.config.diff import annotated

_DEFAULT = config.render(config.default_configuration())


def annotated_lines(**fields: Any) -> list[str]:
    """The annotated lines of a configuration, without indentation."""
    text = annotated(config.render(config.load(v1(**fields))), _DEFAULT)
    return [line.strip() for line in text.splitlines() if "  # " in line]


def test_the_default_configuration_has_no_comments() -> None:
    assert annotated_lines() == []


def test_a_changed_value_is_annotated_with_its_default() -> None:
    assert annotated_lines(parallelism=4) == ["parallelism: 4  # default: 16"]


def test_a_section_missing_from_the_default_is_annotated_once() -> None:
    assert annotated_lines(extenders=[{"urlPrefix": "http://x"}]) == ["extenders:  # not in the default"]


def test_plugins_are_compared_by_name() -> None:
    lines = annotated_lines(profiles=[profile(multiPoint=enabled("Mine", disabled=("ImageLocality",), NodeAffinity=7))])
    assert lines == [
        "enabled:  # default also has ImageLocality",
        "weight: 7  # default: 2",
        "- name: Mine  # not in the default",
        "disabled:  # not in the default",
    ]


def test_a_changed_order_is_annotated_at_the_list() -> None:
    reordered = enabled("PrioritySort", "DefaultBinder", "SchedulingGates", disabled=("*",))
    (order,) = (
        line for line in annotated_lines(profiles=[profile(multiPoint=reordered)]) if line.startswith("enabled:")
    )
    assert order.endswith("; order differs from the default")


def test_each_profile_is_compared_with_the_default_profile() -> None:
    lines = annotated_lines(profiles=[profile(), profile("batch", score=disabled("ImageLocality"))])
    assert lines == ['- schedulerName: batch  # default: "default-scheduler"', "score:  # not in the default"]


def test_arguments_are_compared_field_by_field() -> None:
    args = {"InterPodAffinity": {"hardPodAffinityWeight": 9}}
    assert annotated_lines(profiles=[profile(args=args)]) == ["hardPodAffinityWeight: 9  # default: 1"]


@pytest.mark.parametrize("case", [c for c in CASES if "config_error" not in c], ids=lambda case: case["name"])
def test_annotated_yaml_loads_to_the_same_configuration(case: dict[str, Any]) -> None:
    gates = config.FeatureGates(case.get("featureGates"))
    rendered = config.render(config.load(case["config"], gates=gates))
    assert yaml.safe_load(annotated(rendered, _DEFAULT)) == rendered
