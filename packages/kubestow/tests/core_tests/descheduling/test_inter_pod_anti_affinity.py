"""RemovePodsViolatingInterPodAntiAffinity."""

from __future__ import annotations

from typing import Any

from core_tests.descheduling.objects import evicted, loop, node, pod, policy


def excluding(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_an_evicted_pod_does_not_conflict_with_pods_that_are_looked_at_later() -> None:
    pods = [
        pod("web-1", "n1", affinity=excluding("db"), priority=100),
        pod("web-2", "n1", affinity=excluding("db"), priority=50),
        pod("db", "n1", affinity=excluding("web"), priority=0, metadata={"labels": {"app": "db"}}),
    ]
    result = loop(policy("RemovePodsViolatingInterPodAntiAffinity"), [node("n1"), node("n2")], pods)
    assert evicted(result) == ["db"]
