"""A configuration beside the default one: what differs is marked, and the marks are only comments."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.config.comparison import annotated
from tests.config.builders import disabled, enabled, profile, v1
from tests.config.test_recorded_configurations import _CASES

_DEFAULT = config.render(config.default_configuration())


def marked(**fields: Any) -> list[str]:
    """The lines of a configuration that carry a mark, without indentation."""
    text = annotated(config.render(config.load(v1(**fields))), _DEFAULT)
    return [line.strip() for line in text.splitlines() if "  # " in line]


def test_the_default_has_no_marks() -> None:
    assert marked() == []


def test_a_value_is_marked_with_its_default() -> None:
    assert marked(parallelism=4) == ["parallelism: 4  # default: 16"]


def test_a_section_that_the_default_lacks_is_marked_once() -> None:
    assert marked(extenders=[{"urlPrefix": "http://x"}]) == ["extenders:  # not in the default"]


def test_plugins_are_compared_by_name() -> None:
    lines = marked(profiles=[profile(multiPoint=enabled("Mine", disabled=("ImageLocality",), NodeAffinity=7))])
    assert lines == [
        "enabled:  # default also has ImageLocality",
        "weight: 7  # default: 2",
        "- name: Mine  # not in the default",
        "disabled:  # not in the default",
    ]


def test_another_order_is_marked_at_the_list() -> None:
    reordered = enabled("PrioritySort", "DefaultBinder", "SchedulingGates", disabled=("*",))
    (order,) = (line for line in marked(profiles=[profile(multiPoint=reordered)]) if line.startswith("enabled:"))
    assert order.endswith("; in another order than the default")


def test_each_profile_is_compared_with_the_default_one() -> None:
    lines = marked(profiles=[profile(), profile("batch", score=disabled("ImageLocality"))])
    assert lines == ['- schedulerName: batch  # default: "default-scheduler"', "score:  # not in the default"]


def test_arguments_are_compared_field_by_field() -> None:
    args = {"InterPodAffinity": {"hardPodAffinityWeight": 9}}
    assert marked(profiles=[profile(args=args)]) == ["hardPodAffinityWeight: 9  # default: 1"]


@pytest.mark.parametrize("case", [c for c in _CASES if "config_error" not in c], ids=lambda case: case["name"])
def test_marks_change_nothing(case: dict[str, Any]) -> None:
    gates = config.FeatureGates(case.get("featureGates"))
    rendered = config.render(config.load(case["config"], gates=gates))
    assert yaml.safe_load(annotated(rendered, _DEFAULT)) == rendered
