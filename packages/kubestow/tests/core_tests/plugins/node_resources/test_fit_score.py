"""Which requests of a pod enter its NodeResourcesFit score."""

from __future__ import annotations

from kubestow.testing import PluginHarness, node, pod

HUGEPAGES = "hugepages-2Mi"
PROFILE = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": HUGEPAGES, "weight": 1}],
                }
            },
        }
    ]
}
NODES = [node("n", cpu="4", allocatable={HUGEPAGES: "4Gi"})]


def score(container: dict[str, str], pod_level: dict[str, str]) -> int:
    incoming = pod("p", requests=container, spec={"resources": {"requests": pod_level}})
    return PluginHarness(NODES, profile=PROFILE).scores(incoming, "NodeResourcesFit")["n"]


def test_pod_level_requests_do_not_enter_the_score() -> None:
    assert score({"cpu": "1"}, {"cpu": "4"}) == 25


def test_hugepages_that_only_the_pod_level_requests_are_left_out_of_the_score() -> None:
    assert score({"cpu": "1"}, {HUGEPAGES: "4Gi"}) == 25


def test_hugepages_of_containers_enter_the_score_even_if_the_pod_level_replaces_them() -> None:
    assert score({"cpu": "1", HUGEPAGES: "3Gi"}, {HUGEPAGES: "4Gi"}) == (25 + 75) // 2
