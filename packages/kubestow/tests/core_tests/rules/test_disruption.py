"""Which evictions use up a disruption of a budget, and which it denies."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import PodStatus
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.rules.disruption import BudgetIndex, EvictionBudgets, denial, is_disruption, is_exempt
from kubestow.testing import node, pod


def budget(name: str = "b", *, selector: Any = None, generation: int = 1, policy: str = "", **status: Any) -> Any:
    manifest = {
        "metadata": {"name": name, "namespace": "prod", "generation": generation},
        "spec": {"selector": selector, "unhealthyPodEvictionPolicy": policy},
        "status": {"observedGeneration": 1, **status},
    }
    return convert(PodDisruptionBudget, manifest)


def test_a_budget_limits_pods_with_labels_that_its_selector_matches() -> None:
    invalid = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    budgets = (
        budget("invalid", selector=invalid),
        budget("app", selector={"matchLabels": {"app": "web"}}),
        budget("all", selector={}),
        budget("none"),
    )
    index = BudgetIndex(budgets)
    assert [one.metadata.name for one in index.limiting("prod", {"app": "web"})] == ["app", "all"]
    assert [one.metadata.name for one in index.limiting("prod", {"app": "db"})] == ["all"]
    assert index.limiting("other", {"app": "web"}) == []
    assert index.limiting("prod", {}) == []
    assert [one.metadata.name for one in index.selecting("prod", {})] == ["all"]


@pytest.mark.parametrize(
    ("phase", "counts"),
    [("Running", True), ("Unknown", True), ("", True), ("Pending", False), ("Succeeded", False), ("Failed", False)],
)
def test_pods_that_are_pending_finished_or_being_deleted_need_no_budget(phase: str, counts: bool) -> None:
    assert is_disruption(phase, is_terminating=False) == counts
    assert not is_disruption(phase, is_terminating=True)


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "exempt"),
    [
        ("", 2, 2, True),
        ("", 1, 1, True),
        ("", 1, 2, False),
        ("", 0, 0, False),
        ("AlwaysAllow", 0, 2, True),
        ("IfHealthyBudget", 1, 2, False),
    ],
)
def test_a_pod_that_is_not_ready_may_be_exempt(policy: str, healthy: int, desired: int, exempt: bool) -> None:
    guard = budget(policy=policy, currentHealthy=healthy, desiredHealthy=desired)
    assert is_exempt(PodStatus(), guard) == exempt
    ready = convert(PodStatus, {"conditions": [{"type": "Ready", "status": "True"}]})
    assert not is_exempt(ready, guard)
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    assert is_exempt(convert(PodStatus, {"conditions": conditions}), guard) == exempt


@pytest.mark.parametrize(
    ("guard", "used", "denied"),
    [
        (budget(disruptionsAllowed=1), 0, None),
        (budget(disruptionsAllowed=2), 1, None),
        (
            budget(disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2),
            1,
            ("The disruption budget b does not allow evicting pods currently", None),
        ),
        (
            budget(currentHealthy=1, desiredHealthy=2),
            0,
            ("The disruption budget b needs 2 healthy pods and has 1 currently", None),
        ),
        (
            budget(currentHealthy=2, desiredHealthy=2),
            0,
            ("The disruption budget b needs 2 healthy pods and has 2 currently", None),
        ),
        (
            budget(
                currentHealthy=3,
                desiredHealthy=2,
                conditions=[{"type": "DisruptionAllowed", "reason": "InsufficientPods", "message": "few"}],
            ),
            0,
            ("The disruption budget b does not allow evicting pods currently", None),
        ),
        (
            budget(disruptionsAllowed=1, generation=2),
            0,
            ("The disruption budget b is still being processed by the server.", 10),
        ),
        (
            budget(conditions=[{"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "no scale"}]),
            0,
            ("The disruption budget b does not allow evicting pods currently because it failed sync: no scale", None),
        ),
    ],
)
def test_an_eviction_is_denied_without_disruptions_left(
    guard: PodDisruptionBudget, used: int, denied: tuple[str, int | None] | None
) -> None:
    assert denial(guard, used=used) == denied


def test_pods_are_evicted_together_as_far_as_the_one_budget_of_each_allows() -> None:
    def running(name: str, **labels: str) -> Any:
        return pod(name, namespace="prod", labels=labels, status={"phase": "Running"})

    web = [running(f"web-{number}", app="web") for number in range(3)]
    both, free = running("both", app="web", tier="front"), running("free")
    guards = [
        budget("web", selector={"matchLabels": {"app": "web"}}, disruptionsAllowed=2),
        budget("front", selector={"matchLabels": {"tier": "front"}}, disruptionsAllowed=9),
    ]
    budgets = EvictionBudgets([node("n"), *guards])
    assert budgets.evictable([both, *web, free]) == [*web[:2], free]
    assert budgets.reason(both) == "more than one PodDisruptionBudget selects it: web, front"
    assert budgets.reason(web[2]) == "PodDisruptionBudget web allows no further disruption"
    budgets.use([web[0], free])
    assert budgets.evictable(web[1:]) == [web[1]]
