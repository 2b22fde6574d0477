"""NodeResourcesAllocatable, with the test tables of scheduler-plugins."""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.errors import ConfigurationError
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.node_resources_allocatable import NodeResourcesAllocatable

NAME = "NodeResourcesAllocatable"
CPU_WEIGHTED = [{"name": "cpu", "weight": 1 << 30}, {"name": "memory", "weight": 1}]


def scores(sizes: list[tuple[str, str]], args: dict[str, Any]) -> list[int]:
    nodes = [node(f"machine-{number}", cpu=cpu, memory=memory) for number, (cpu, memory) in enumerate(sizes)]
    profile = profile_of(NAME, args)
    profile["plugins"]["filter"] = {"disabled": [{"name": "*"}]}
    harness = PluginHarness(nodes, profile=profile, plugins=[NodeResourcesAllocatable])
    return list(harness.scores(pod(cpu="1", memory="1Gi"), NAME).values())


@pytest.mark.parametrize(
    ("sizes", "args", "expected"),
    [
        ([("4", "10000"), ("4", "10000")], {}, [0, 0]),
        ([("4", "10000"), ("6", "10000")], {}, [100, 0]),
        ([("4", "10000"), ("6", "10000")], {"mode": "Most"}, [0, 100]),
        ([("4", "1000"), ("5", "1000")], {"mode": ""}, [100, 0]),
        ([("1", "2000"), ("1005m", "1000")], {"resources": CPU_WEIGHTED}, [100, 0]),
        ([("1", "2000"), ("1005m", "1000")], {"resources": CPU_WEIGHTED, "mode": "Most"}, [0, 100]),
        ([("1", "1000Mi"), ("2", "2000Mi"), ("3", "3000Mi")], {}, [100, 50, 0]),
        ([("1", "1000Mi"), ("2", "2000Mi"), ("3", "3000Mi")], {"mode": "Most"}, [0, 50, 100]),
    ],
)
def test_scores(sizes: list[tuple[str, str]], args: dict[str, Any], expected: list[int]) -> None:
    assert scores(sizes, args) == expected


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"resources": [{"name": "memory", "weight": -1}]}, r"resources\[0\].weight is -1, expected a positive weight"),
        ({"resources": [{"name": "memory", "weight": 1}, {"name": "cpu"}]}, r"resources\[1\].weight is 0"),
        ({"mode": "Some"}, 'mode is "Some", expected Least or Most'),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        scores([], args)


def test_the_contract_is_kept() -> None:
    check_plugin(NodeResourcesAllocatable)
