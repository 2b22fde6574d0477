"""TetrisAlignment: the dot product of what is requested and what is free."""

from __future__ import annotations

from typing import Any

from contrib_tests.watched_nodes import profile_of
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.tetris_alignment import TetrisAlignment


def scores(cpu: str, memory: str | None = None, *, args: dict[str, Any] | None = None) -> dict[str, int]:
    nodes = [node("cpu", cpu="10", memory="10Gi"), node("memory", cpu="10", memory="10Gi"), node("half", cpu="10")]
    placed = [
        pod("a", memory="8Gi", node="cpu"),
        pod("b", cpu="8", node="memory"),
        pod("c", cpu="5", node="half"),
    ]
    profile = profile_of("TetrisAlignment", args)
    profile["plugins"]["filter"] = {"disabled": [{"name": "*"}]}
    harness = PluginHarness(nodes, placed, profile=profile, plugins=[TetrisAlignment])
    return harness.scores(pod("p", cpu=cpu, memory=memory), "TetrisAlignment")


def test_a_pod_is_aligned_with_what_is_free() -> None:
    # Free shares of CPU: 1, 0.2 and 0.5; the request is a tenth of each node.
    assert scores("1") == {"cpu": 100, "memory": 0, "half": 37}
    found = scores("1", "4Gi")  # 0.1 + 0.08, 0.02 + 0.4
    assert found["cpu"] < found["memory"]


def test_only_some_resources_may_count() -> None:
    assert scores("1", "4Gi", args={"resources": ["cpu"]}) == {"cpu": 100, "memory": 0, "half": 37}


def test_the_contract_is_kept() -> None:
    check_plugin(TetrisAlignment, events=60)
