"""VolcanoBinpack, with examples computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.errors import ConfigurationError
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.volcano.binpack import VolcanoBinpack

NAME = "VolcanoBinpack"


def scores(args: dict[str, Any], **requests: str) -> list[int]:
    nodes = [
        node("a", cpu="2", memory="4Gi", allocatable={"nvidia.com/gpu": "4"}),
        node("b", cpu="4", memory="16Gi"),
        node("c", cpu="4", memory="4Gi", allocatable={"nvidia.com/gpu": "4"}),
    ]
    pods = [pod("used", cpu="2", memory="1Gi", requests={"nvidia.com/gpu": "1"}, node="c")]
    profile = profile_of(NAME, args)
    profile["plugins"]["filter"] = {"disabled": [{"name": "*"}]}
    harness = PluginHarness(nodes, pods, profile=profile, plugins=[VolcanoBinpack])
    return list(harness.scores(pod(requests=requests), NAME).values())


@pytest.mark.parametrize(
    ("args", "requests", "expected"),
    [
        ({}, {"cpu": "1"}, [50, 25, 75]),
        ({}, {"cpu": "1", "memory": "1Gi"}, [37, 15, 62]),
        ({"resources": {"cpu": 3, "memory": 1}}, {"cpu": "1", "memory": "1Gi"}, [43, 20, 68]),
        # Full nodes, and those without the resource.
        ({}, {"cpu": "3"}, [0, 75, 0]),
        ({"resources": {"nvidia.com/gpu": 2, "cpu": 2}}, {"cpu": "1", "nvidia.com/gpu": "2"}, [50, 12, 75]),
        # What has no weight, or is not requested, does not count.
        ({"resources": {"memory": 1}}, {"cpu": "1"}, [0, 0, 0]),
        ({"resources": {"cpu": 0}}, {"cpu": "1"}, [0, 0, 0]),
        ({}, {}, [0, 0, 0]),
    ],
)
def test_scores(args: dict[str, Any], requests: dict[str, str], expected: list[int]) -> None:
    assert scores(args, **requests) == expected


def test_bad_weights_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"resources.cpu is -1, expected a weight of at least 0"):
        scores({"resources": {"cpu": -1}})
    with pytest.raises(ConfigurationError, match="resources"):
        scores({"resources": ["cpu"]})


def test_the_contract_is_kept() -> None:
    check_plugin(VolcanoBinpack)
