"""NodeResourcesBalancedAllocation: which pods it scores, also in a profile that disables its PreScore."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import PluginHarness, node, pod

PLUGIN = "NodeResourcesBalancedAllocation"
NODES = [node(name, cpu="4", memory="8Gi", allocatable={"ephemeral-storage": "10Gi"}) for name in ("busy", "empty")]
PLACED = [pod("cpu-bound", cpu="3", memory="0", node="busy")]
WITHOUT_PRE_SCORE = {
    "plugins": {"multiPoint": {"disabled": [{"name": PLUGIN}]}, "score": {"enabled": [{"name": PLUGIN}]}}
}


def scores(*, profile: dict[str, Any] | None = None, **incoming: Any) -> dict[str, int]:
    return PluginHarness(NODES, PLACED, profile=profile).scores(pod("p", **incoming), PLUGIN)


@pytest.mark.parametrize("requests", [{}, {"ephemeral-storage": "1Gi"}], ids=["best-effort", "storage"])
def test_without_pre_score_a_pod_that_requests_no_scored_resource_gets_0_on_every_node(
    requests: dict[str, str],
) -> None:
    assert scores(profile=WITHOUT_PRE_SCORE, requests=requests) == {"busy": 0, "empty": 0}
    assert scores(requests=requests) == {}


def test_without_pre_score_any_other_pod_gets_the_usual_score() -> None:
    usual = scores(cpu="1", memory="4Gi")
    assert scores(profile=WITHOUT_PRE_SCORE, cpu="1", memory="4Gi") == usual
    assert usual["busy"] != usual["empty"]
